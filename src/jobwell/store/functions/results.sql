-- version: 1
-- Results that are kept for a shorter time than their job.

-- As jobwell.finish, for jobs whose task says how long a result is kept. They are stored first and dated then, in one commit:
-- so the end of an attempt is written once, in finish, and tasks without such a time pay nothing.
-- An answer that was lost changes nothing: stored again, they are no longer the caller's, and the date comes out the same.
create or replace function jobwell.finish_expiring(p_ids uuid[], p_claims uuid[], p_results text[], p_notes text[], p_seconds float8[])
returns setof uuid
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off
as $$
begin
  return query select jobwell.finish(p_ids, p_claims, p_results, p_notes);
  -- Not earlier than an hour ago: so that the partitions of other days are not looked at.
  update jobwell.finished f set result_until = f.finished_at + make_interval(secs => g.seconds)
    from unnest(p_ids, p_seconds) as g(id, seconds)
   where f.id = any (p_ids) and f.id = g.id and f.finished_at > (select jobwell.now()) - interval '1 hour' and f.result is not null;
end $$;

-- How these jobs stand now, wherever they are; those that have ended with what came of them. One statement, so that a job on
-- the move is seen exactly once. Asked again and again while somebody waits: by primary key whatever the statistics say, and
-- planned once per connection, since to plan for all partitions takes longer than to look.
create or replace function jobwell.look(p_ids uuid[], p_expired text)
returns table (place integer, id uuid, state text, task text, attempt smallint, result text, note text, reason text, code text,
               error_type text, message text)
language plpgsql stable
set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
begin
  return query
  select 1, j.id, j.state, j.task, j.attempt, null::text, null::text, null::text, null::text, null::text, null::text
    from jobwell.jobs j where j.id = any (p_ids)
  union all
  select 2, f.id, f.state, f.task, f.attempt, case when f.result_until <= jobwell.now() then null else f.result::text end,
         case when f.result_until <= jobwell.now() then p_expired else f.note end, null, null, null, null
    from jobwell.finished f where f.id = any (p_ids)
  union all
  select 3, q.id, 'failed', q.task, q.attempt, null, null, q.reason, q.code, q.error_type, q.message
    from jobwell.quarantine q where q.id = any (p_ids);
end $$;

-- Take out one piece of the results whose time is over. Returns how many; call again while it is p_limit.
create or replace function jobwell.expire_results(p_limit integer, p_note text) returns integer
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  expired integer;
begin
  with old as materialized (
    select f.id, f.finished_at from jobwell.finished f where f.result_until <= (select jobwell.now())
     order by f.result_until limit p_limit for update skip locked)
  update jobwell.finished f set result = null, result_until = null, note = p_note
    from old o where f.id = o.id and f.finished_at = o.finished_at;
  get diagnostics expired = row_count;
  return expired;
end $$;

-- version: 1
-- Runs: what the jobs of a stage read and write of their items.

create or replace function jobwell.run_shard() returns smallint
language sql volatile as $$ select (pg_backend_pid() % 32)::smallint $$;

-- The items of a job as its arguments name them: spans of numbers.
create or replace function jobwell.run_nos(p_args json) returns setof bigint
language sql immutable as $$
  select generate_series((s.value ->> 0)::bigint, (s.value ->> 1)::bigint) from json_array_elements(p_args -> 'spans') s
$$;

create or replace function jobwell.run_spans(p_nos bigint[]) returns json
language sql immutable as $$
  select coalesce(json_agg(json_build_array(f.first, f.last) order by f.first), '[]') from (
    select min(g.no) as first, max(g.no) as last
      from (select u.no, u.no - row_number() over (order by u.no) as island from (select distinct n.no from unnest(p_nos) n(no)) u) g group by g.island) f
$$;

create or replace function jobwell.run_args(p_run uuid, p_stage smallint, p_nos bigint[]) returns text
language sql immutable as $$
  select '{"bulk_run":"' || p_run || '","stage":' || p_stage
         || case when p_nos is null then '' else ',"spans":' || jobwell.run_spans(p_nos) end || '}'
$$;

create or replace function jobwell.run_job_id(p_now timestamptz) returns uuid
language sql volatile as $$
  -- An id that sorts by time, as those that producers make.
  select (left(t.hex, 8) || '-' || right(t.hex, 4) || '-7' || substr(gen_random_uuid()::text, 16))::uuid
    from (select lpad(to_hex((extract(epoch from p_now) * 1000)::bigint), 12, '0') as hex) t
$$;

-- What these jobs hold as it stands in the store: what a worker has in its memory may be older than a retry of the run.
create or replace function jobwell.run_held(p_jobs uuid[]) returns table (job uuid, no bigint)
language sql stable as $$
  select j.id, n.no from jobwell.jobs j cross join lateral (
    select coalesce(j.args, (select p.args from jobwell.payloads p where p.id = j.id)) as args offset 0) a cross join jobwell.run_nos(a.args) n(no)
   where j.id = any (p_jobs)
$$;

-- The items of these jobs that are open yet, with the state of their runs. One that has been open before may have been given to
-- another job meanwhile.
create or replace function jobwell.run_load(p_jobs uuid[], p_runs uuid[], p_stages smallint[], p_firsts bigint[], p_lasts bigint[])
returns table (job uuid, run_state text, no bigint, key text, data text, attempt smallint, tries smallint)
language sql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
as $$
  select distinct on (g.job, i.no) g.job, case when r.cancelled then 'cancelled' else r.state end, i.no, i.key,
         case when r.state in ('queued', 'running') and not r.cancelled then i.data::text end,
         coalesce(s.attempt, 0::smallint), coalesce(s.tries, 0::smallint)
    -- Each look-up by itself and in this order, whatever the statistics say: a join would read the whole table for a few items.
    from unnest(p_jobs, p_runs, p_stages, p_firsts, p_lasts) as g(job, run, stage, first, last)
   cross join lateral (select x.state, x.cancelled from jobwell.runs x where x.id = g.run offset 0) r
   cross join lateral (
     select x.no, x.key, x.data from jobwell.run_items x where x.run_id = g.run and x.no between g.first and g.last order by x.no offset 0) i
    left join lateral (
      select x.state, x.attempt, x.tries from jobwell.run_states x where x.run_id = g.run and x.stage = g.stage and x.no = i.no offset 0) s on true
   where s.state is null or (s.state = 'open' and (g.job, i.no) in (select h.job, h.no from jobwell.run_held(p_jobs) h))
   order by g.job, i.no
$$;

-- What became of items, and what follows: fenced by the claims of their jobs, and changed where an item is open only.
-- States: done, failed, skipped, cancelled; open: once more after a delay, alone; back: handed back as it was. The jobs that
-- hand something back get the arguments without it, so that another attempt of theirs does not find it. What waits again or has been
-- open before counts only while the arguments hold it: so the whole may be repeated, however old it is.
-- Returns the jobs that were no longer the caller's ('lost'), and the states of the runs.
create or replace function jobwell.run_record(p_jobs uuid[], p_claims uuid[], p_runs uuid[], p_stages smallint[], p_nos bigint[],
  p_states text[], p_codes text[], p_messages text[], p_delays double precision[], p_rest_jobs uuid[], p_rest_args text[])
returns table (id uuid, told text)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
declare
  mine uuid[];
  now timestamptz := jobwell.now();
begin
  mine := array(
    select j.id from jobwell.jobs j
     where j.id = any (p_jobs) and ((j.id, j.claim_id) in (select g.id, g.claim from unnest(p_jobs, p_claims) g(id, claim))) is true
     order by j.id for no key update);
  with given as materialized (
    select distinct on (g.run, g.stage, g.no) g.*
      from unnest(p_jobs, p_runs, p_stages, p_nos, p_states, p_codes, p_messages, p_delays)
        as g(job, run, stage, no, state, code, message, delay)
     where g.job = any (mine)
       and case when g.state in ('open', 'back')
                  or exists (select from jobwell.run_states s where s.run_id = g.run and s.stage = g.stage and s.no = g.no and s.state = 'open')
                then (g.job, g.no) in (select h.job, h.no from jobwell.run_held(mine) h) else true end
     order by g.run, g.stage, g.no),
  kept as (
    insert into jobwell.run_states as s (run_id, stage, no, state, attempt, tries, at, code, message)
    select g.run, g.stage, g.no, g.state, 1, 1, now, g.code, g.message
      from given g where g.state <> 'back' order by g.run, g.stage, g.no
    on conflict (run_id, stage, no) do update
       set state = excluded.state, attempt = s.attempt + 1, tries = s.tries + 1, at = excluded.at, code = excluded.code,
           message = coalesce(excluded.message, case when s.attempt = 0 then s.message end)  -- what a gateway has told before
     where s.state = 'open'
    returning s.run_id, s.stage, s.no, s.state),
  -- Waiting again: handed back at once, or alone after its delay.
  waits as (
    insert into jobwell.run_lots (run_id, stage, ready_at, n, nos)
    select w.run, w.stage, now + make_interval(secs => w.delay), count(*), array_agg(w.no order by w.no)
      from (select g.run, g.stage, g.no, ceil(coalesce(g.delay, 0)) as delay, 0 as piece from kept k
              join given g on g.run = k.run_id and g.stage = k.stage and g.no = k.no and g.state = 'open' where k.state = 'open'
            union all
            select g.run, g.stage, g.no, 0, (row_number() over (partition by g.run, g.stage order by g.no) - 1) / 500
              from given g where g.state = 'back') w
     group by w.run, w.stage, w.delay, w.piece),
  onward as (
    insert into jobwell.run_lots (run_id, stage, ready_at, n, nos)
    select o.run_id, o.stage, now, count(*), array_agg(o.no order by o.no)
      from (select k.run_id, t.stage, k.no,
                   (row_number() over (partition by k.run_id, t.stage order by k.no) - 1) / coalesce(nullif(t.chunk, 0), 100) as piece
              from kept k join jobwell.run_stages t on t.run_id = k.run_id and t.after = k.stage and t.kind = 'items'
             where k.state = 'done') o
     group by o.run_id, o.stage, o.piece),
  changed as (
    select c.run_id, c.stage, count(*) as gone, count(*) filter (where c.state = 'done') as done,
           count(*) filter (where c.state = 'failed') as failed, count(*) filter (where c.state = 'skipped') as skipped,
           count(*) filter (where c.state = 'cancelled') as cancelled
      from (select k.run_id, k.stage, k.state from kept k union all select g.run, g.stage, 'back' from given g where g.state = 'back') c
     group by c.run_id, c.stage)
  insert into jobwell.run_counts as c (run_id, stage, shard, out, done, failed, skipped, cancelled)
  select n.run_id, n.stage, jobwell.run_shard(), -n.gone, n.done, n.failed, n.skipped, n.cancelled
    from changed n order by n.run_id, n.stage
  on conflict (run_id, stage, shard) do update
     set out = c.out + excluded.out, done = c.done + excluded.done, failed = c.failed + excluded.failed,
         skipped = c.skipped + excluded.skipped, cancelled = c.cancelled + excluded.cancelled;
  if p_rest_jobs is not null then
    update jobwell.payloads p set args = r.args::json
      from unnest(p_rest_jobs, p_rest_args) r(job, args) where p.id = r.job and r.job = any (mine);
    update jobwell.jobs j set args = r.args::json, bytes = octet_length(r.args)
      from unnest(p_rest_jobs, p_rest_args) r(job, args) where j.id = r.job and r.job = any (mine) and j.args is not null;
  end if;
  return query select distinct g.job, 'lost' from unnest(p_jobs) g(job) where not g.job = any (mine);
  return query
  select r.id, case when r.cancelled then 'cancelled' else r.state end from jobwell.runs r
   where r.id = any (array(select distinct g.run from unnest(p_runs) g(run)));
end $$;

-- A job of a run has failed for good: so have its items that are open. In the transaction that puts it into the quarantine, with
-- others of its worker: so it never raises, whatever a task of another kind has for arguments. A job is one of a run if the run has
-- a stage with its task.
create or replace function jobwell.run_job_failed() returns trigger
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  given json := coalesce(new.args, (select p.args from jobwell.payloads p where p.id = new.id));
  run   uuid;
  part  jobwell.run_stages;
  told  text;
begin
  if given is null or given ->> 'bulk_run' is null or given ->> 'bulk_run' !~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
     or (given ->> 'stage' ~ '^\d{1,4}$') is not true then
    return null;
  end if;
  run := (given ->> 'bulk_run')::uuid;
  select * into part from jobwell.run_stages t where t.run_id = run and t.stage = (given ->> 'stage')::smallint and t.task = new.task;
  told := left(coalesce(new.message, 'its job failed: ' || new.reason), 1000);
  if part.kind is null then
    return null;
  elsif part.kind <> 'items' then
    update jobwell.run_stages t set state = 'failed', message = told, ended_at = jobwell.now()
     where t.run_id = run and t.stage = part.stage and t.job_id = new.id and t.state = 'enqueued';
    return null;
  end if;
  with kept as (
    insert into jobwell.run_states as s (run_id, stage, no, state, attempt, tries, at, code, message)
    select run, part.stage, n.no, 'failed', 1, 1, jobwell.now(), coalesce(new.code, new.reason), told
      from (select distinct f.no from jobwell.run_nos(given) f(no)
             where exists (select from jobwell.run_items i where i.run_id = run and i.no = f.no) order by f.no) n
    on conflict (run_id, stage, no) do update
       set state = 'failed', attempt = s.attempt + 1, tries = s.tries + 1, at = excluded.at, code = excluded.code, message = excluded.message
     where s.state = 'open'
    returning s.no),
  gone as (select count(*) as n from kept)
  insert into jobwell.run_counts as c (run_id, stage, shard, out, failed)
  select run, part.stage, jobwell.run_shard(), -g.n, g.n from gone g where g.n > 0
  on conflict (run_id, stage, shard) do update set out = c.out + excluded.out, failed = c.failed + excluded.failed;
  return null;
exception when data_exception then
  return null;  -- arguments that no run has made
end $$;

-- Its condition looks at the arguments as a text: to read a field of them may raise, as by an escaped NUL.
create or replace trigger run_job_failed after insert on jobwell.quarantine
  for each row when (current_setting('jobwell.moving', true) is distinct from 'on' and (new.args is null or new.args::text like '%"bulk_run"%'))
  execute function jobwell.run_job_failed();

-- What a gateway tells of an item later: it never goes back from its end. Returns 'changed', 'known' or 'unknown'.
create or replace function jobwell.run_deliver(p_run uuid, p_stage smallint, p_no bigint, p_state text, p_message text) returns text
language plpgsql volatile as $$
declare
  before text;
begin
  -- The word may be here before the outcome of the item is.
  insert into jobwell.run_states (run_id, stage, no, state, attempt, tries)
  select p_run, p_stage, p_no, 'open', 0, 0 where exists (select from jobwell.run_items i where i.run_id = p_run and i.no = p_no)
  on conflict (run_id, stage, no) do nothing;
  select s.delivery into before from jobwell.run_states s where s.run_id = p_run and s.stage = p_stage and s.no = p_no for update;
  if not found then
    return 'unknown';
  elsif before is not null and (before <> 'accepted' or p_state = 'accepted') then
    return 'known';
  end if;
  update jobwell.run_states s set delivery = p_state, delivery_at = jobwell.now(), message = coalesce(p_message, s.message)
   where s.run_id = p_run and s.stage = p_stage and s.no = p_no;
  insert into jobwell.run_counts as c (run_id, stage, shard, accepted, delivered, bounced)
  values (p_run, p_stage, jobwell.run_shard(), (p_state = 'accepted')::integer - (before is not null)::integer,
          (p_state = 'delivered')::integer, (p_state = 'bounced')::integer)
  on conflict (run_id, stage, shard) do update
     set accepted = c.accepted + excluded.accepted, delivered = c.delivered + excluded.delivered, bounced = c.bounced + excluded.bounced;
  return 'changed';
end $$;

-- version: 4
-- Cancelling: what waits is over at once; what runs is asked to stop, and its worker tells how it ended.

-- Returns for each live job of p_ids whether it is over ('cancelled') or asked ('asked'); others are left out.
create or replace function jobwell.cancel(p_ids uuid[], p_actor text, p_why text)
returns table (id uuid, outcome text)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
begin
  -- One order for everybody, so that two who cancel the same jobs do not wait for each other in a circle. The statements after
  -- this one see what the waits have let happen.
  perform from jobwell.jobs j where j.id = any (p_ids) order by j.id for update;
  return query
  with over as (
    delete from jobwell.jobs j where j.id = any (p_ids) and j.state <> 'running' returning j.*),
  kept as (
    insert into jobwell.finished (id, finished_at, enqueued_at, run_at, started_at, worker, rank, attempt, failures, bytes,
                                  queue, task, state, tenant, args, meta, note)
    select o.id, (select jobwell.now()), o.enqueued_at, o.run_at, o.started_at, o.worker, o.rank, o.attempt, o.failures, o.bytes,
           o.queue, o.task, 'cancelled', o.tenant, o.args, o.meta, jobwell.cancel_note(p_actor, p_why)
      from over o)
  select o.id, 'cancelled' from over o;
  return query
  with asked as (
    insert into jobwell.cancels (job_id, actor, why)
    select j.id, p_actor, p_why from jobwell.jobs j where j.id = any (p_ids) and j.state = 'running'
    on conflict (job_id) do nothing
    returning job_id)
  select j.id, 'asked' from jobwell.jobs j where j.id = any (p_ids) and j.state = 'running';
end $$;

create or replace function jobwell.cancel_note(p_actor text, p_why text) returns text
language sql immutable as $$ select 'cancelled by ' || p_actor || coalesce(': ' || nullif(p_why, ''), '') $$;

-- What this worker runs and shall stop. Whoever asks also settles what the others have left: a job that has ended needs no
-- asking any more, and one that waits for another attempt is cancelled where it waits.
create or replace function jobwell.cancels_of(p_worker uuid) returns table (id uuid, claim_id uuid)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
declare
  open record;
begin
  if not exists (select from jobwell.cancels) then
    return;
  end if;
  for open in
    select c.job_id, c.actor, c.why from jobwell.cancels c
     where not exists (select from jobwell.jobs j where j.id = c.job_id and j.state = 'running')
     order by c.job_id limit 500 for update of c skip locked loop
    -- Who holds the job is at it, or stands still with it: the next look asks again, and this one waits for nobody.
    perform from jobwell.jobs j where j.id = open.job_id for update skip locked;
    if not found and exists (select from jobwell.jobs j where j.id = open.job_id) then
      continue;
    end if;
    perform jobwell.cancel(array[open.job_id], open.actor, open.why);
    -- A claim under way may have been earlier than the cancel; then it was asked once more, and the row stays.
    delete from jobwell.cancels c where c.job_id = open.job_id
       and not exists (select from jobwell.jobs j where j.id = open.job_id and j.state = 'running');
  end loop;
  return query
  select j.id, j.claim_id from jobwell.cancels c join jobwell.jobs j on j.id = c.job_id
   where j.state = 'running' and j.worker = p_worker;
end $$;

-- An attempt that was asked to stop has stopped. Fenced like every end; returns the ids that were no longer the caller's.
create or replace function jobwell.cancelled(p_given json) returns setof uuid
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off
as $$
  with given as materialized (
    select * from json_to_recordset(p_given) as g(id uuid, claim_id uuid, kind text, error_type text, message text, traceback text, origin text)),
  ended as (
    delete from jobwell.jobs j
     where j.id = any (array(select g.id from given g)) and ((j.id, j.claim_id) in (select g.id, g.claim_id from given g)) is true
    returning j.*),
  asked as (
    delete from jobwell.cancels c using ended e where c.job_id = e.id returning c.*),
  logged as (
    insert into jobwell.attempts (job_id, started_at, claim_id, worker, attempt, outcome, kind, error_type, message, traceback,
      origin)
    select e.id, e.started_at, e.claim_id, e.worker, e.attempt, 'cancelled', g.kind, g.error_type, g.message, g.traceback, g.origin
      from ended e join given g on g.id = e.id and g.claim_id = e.claim_id),
  kept as (
    insert into jobwell.finished (id, finished_at, enqueued_at, run_at, started_at, worker, rank, attempt, failures, bytes,
                                  queue, task, state, tenant, args, meta, note)
    select e.id, (select jobwell.now()), e.enqueued_at, e.run_at, e.started_at, e.worker, e.rank, e.attempt, e.failures, e.bytes,
           e.queue, e.task, 'cancelled', e.tenant, e.args, e.meta,
           coalesce(jobwell.cancel_note(a.actor, a.why), case when g.error_type = 'Compensate' then 'called off by its task: ' || left(g.message, 300) end, 'cancelled')
      from ended e join given g on g.id = e.id and g.claim_id = e.claim_id left join asked a on a.job_id = e.id)
  select g.id from given g where (g.id, g.claim_id) not in (select e.id, e.claim_id from ended e)
$$;

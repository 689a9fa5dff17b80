-- version: 4
-- How an attempt ends when it does not simply succeed. Each takes a JSON array of what happened, matches every row by
-- (id, claim_id), writes the log of attempts in the same statement, and returns the ids that were no longer the caller's.
-- One batch may hold two claims of a job: rescued behind the worker's back, it was claimed by the same worker again.
-- The shape `id = any(array(…)) and (pair in (…)) is true` is explained in finish.sql.

create or replace function jobwell.fail(p_given json) returns setof uuid
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off
as $$
  with given as materialized (
    select * from json_to_recordset(p_given) as g(id uuid, claim_id uuid, reason text, code text, counts boolean, kind text,
      error_type text, message text, traceback text, origin text, fingerprint text)),
  ended as (
    delete from jobwell.jobs j
     where j.id = any (array(select g.id from given g)) and ((j.id, j.claim_id) in (select g.id, g.claim_id from given g)) is true
    returning j.*),
  logged as (
    insert into jobwell.attempts (job_id, started_at, claim_id, worker, attempt, outcome, kind, error_type, message, traceback, origin, note)
    select e.id, e.started_at, e.claim_id, e.worker, e.attempt, 'failed', g.kind, g.error_type, g.message, g.traceback, g.origin, g.reason
      from ended e join given g on g.id = e.id and g.claim_id = e.claim_id),
  kept as (
    insert into jobwell.quarantine (dedup_key, dedup, dedup_window, alone, id, failed_at, enqueued_at, run_at, deadline, started_at, worker, gate, rank, attempt, failures,
      crashes, losses, postponements, bytes, queue, task, tenant, lock_key, reason, code, error_type, message, traceback,
      origin, fingerprint, args, meta)
    select e.dedup_key, e.dedup, e.dedup_window, e.alone, e.id, (select jobwell.now()), e.enqueued_at, e.run_at, e.deadline, e.started_at, e.worker, e.gate, e.rank, e.attempt,
      e.failures + g.counts::integer, e.crashes, e.losses, e.postponements, e.bytes, e.queue, e.task, e.tenant, e.lock_key,
      g.reason, g.code, g.error_type, g.message, g.traceback, g.origin, g.fingerprint, e.args, e.meta
      from ended e join given g on g.id = e.id and g.claim_id = e.claim_id
    on conflict (id) do nothing)  -- a job stored twice by its caller: the first failure is kept, both stand in attempts
  select g.id from given g where (g.id, g.claim_id) not in (select e.id, e.claim_id from ended e)
$$;

-- Another attempt later: the failure counts. Where a queue or a rank is given it goes there in the same step, and the log keeps the
-- queue that it left.
create or replace function jobwell.retry(p_given json) returns setof uuid
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off
as $$
  with given as materialized (
    select * from json_to_recordset(p_given) as g(id uuid, claim_id uuid, delay double precision, kind text,
      error_type text, message text, traceback text, origin text, note text, queue text, rank smallint)),
  mine as (
    select j.id, j.claim_id, j.worker, j.started_at, j.attempt, j.queue from jobwell.jobs j
     where j.id = any (array(select g.id from given g)) and ((j.id, j.claim_id) in (select g.id, g.claim_id from given g)) is true
       for update),
  ended as (
    update jobwell.jobs j
       set state = 'retrying', failures = j.failures + 1, claim_id = null, worker = null, ready_at = null,
           run_at = (select jobwell.now()) + make_interval(secs => g.delay),
           queue = coalesce(g.queue, j.queue), rank = coalesce(g.rank, j.rank)
      from given g
     where j.id = any (array(select m.id from mine m)) and g.id = j.id and g.claim_id = j.claim_id
    returning j.id, j.run_at),
  logged as (
    insert into jobwell.attempts (job_id, started_at, claim_id, worker, attempt, outcome, kind, error_type, message, traceback,
      next_at, origin, note, queue)
    select m.id, m.started_at, m.claim_id, m.worker, m.attempt, 'retrying', g.kind, g.error_type, g.message, g.traceback,
      e.run_at, g.origin, g.note, case when g.queue is not null then m.queue end
      from ended e join mine m on m.id = e.id join given g on g.id = m.id and g.claim_id = m.claim_id)
  select g.id from given g where (g.id, g.claim_id) not in (select m.id, m.claim_id from ended e join mine m on m.id = e.id)
$$;

-- Back to the queue uncounted, so the same attempt number comes again: a snooze is scheduled for later, a hand-back is
-- ready (or scheduled behind a delay).
create or replace function jobwell.postpone(p_given json) returns setof uuid
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off
as $$
  with given as materialized (
    select * from json_to_recordset(p_given) as g(id uuid, claim_id uuid, delay double precision, outcome text, message text)),
  mine as (
    select j.id, j.claim_id, j.worker, j.started_at, j.attempt from jobwell.jobs j
     where j.id = any (array(select g.id from given g)) and ((j.id, j.claim_id) in (select g.id, g.claim_id from given g)) is true
       for update),
  ended as (
    update jobwell.jobs j
       set state = case when g.delay > 0 then 'scheduled' else 'ready' end,
           ready_at = case when g.delay > 0 then null else (select jobwell.now()) end,
           run_at = (select jobwell.now()) + make_interval(secs => g.delay),
           attempt = greatest(j.attempt - 1, 0), postponements = j.postponements + 1,
           claim_id = null, worker = null, started_at = null
      from given g
     where j.id = any (array(select m.id from mine m)) and g.id = j.id and g.claim_id = j.claim_id
    returning j.id, j.run_at),
  logged as (
    insert into jobwell.attempts (job_id, started_at, claim_id, worker, attempt, outcome, next_at, note)
    select m.id, m.started_at, m.claim_id, m.worker, m.attempt, g.outcome, e.run_at, g.message
      from ended e join mine m on m.id = e.id join given g on g.id = m.id and g.claim_id = m.claim_id)
  select g.id from given g where (g.id, g.claim_id) not in (select m.id, m.claim_id from ended e join mine m on m.id = e.id)
$$;

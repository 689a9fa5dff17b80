-- name: count
select count(*) from jobwell.quarantine q
 where (:until::timestamptz is null or q.failed_at <= :until) and (:ids::uuid[] is null or q.id = any (:ids))
   and (:fingerprint::text is null or q.fingerprint = :fingerprint) and (:reason::text is null or q.reason = :reason) and (:queue::text is null or q.queue = :queue)
   and (:task::text is null or q.task = :task) and (:tenant::text is null or q.tenant = :tenant);

-- name: retry
-- Back to ready with a new attempt budget and a new deadline; the history stays in attempts. Returns what was moved.
-- It counts as enqueued now, so that the deadline keeps its length however often this is done; the id tells the first time.
with clock as materialized (select jobwell.now() as now),
chosen as (
  select q.id from jobwell.quarantine q
   where (:until::timestamptz is null or q.failed_at <= :until) and not exists (select from jobwell.jobs j where j.id = q.id)
     and (:ids::uuid[] is null or q.id = any (:ids)) and (:fingerprint::text is null or q.fingerprint = :fingerprint) and (:reason::text is null or q.reason = :reason) and (:queue::text is null or q.queue = :queue)
     and (:task::text is null or q.task = :task) and (:tenant::text is null or q.tenant = :tenant)
   order by q.id limit :limit for update skip locked),
taken as (
  delete from jobwell.quarantine q using chosen c where q.id = c.id returning q.*),
-- It may have failed before it was told that it should stop; that was meant for its former life.
unasked as (
  delete from jobwell.cancels a using chosen c where a.job_id = c.id),
back as (
  insert into jobwell.jobs (alone, id, gate, enqueued_at, run_at, ready_at, deadline, rank, attempt, failures, crashes, losses, postponements,
                            bytes, queue, task, state, tenant, lock_key, args, meta)
  select t.alone, t.id, t.gate, c.now, c.now, c.now, c.now + (t.deadline - t.enqueued_at),
         t.rank, t.attempt, 0, 0, 0, 0, t.bytes, t.queue, t.task, 'ready', t.tenant, t.lock_key, t.args, t.meta
    from taken t, clock c
  returning id, queue)
select b.id, jobwell.wake(array[b.queue]) from back b;

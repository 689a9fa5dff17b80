-- name: insert_one
-- One job and, where a worker waits, its wake-up: one round trip, one commit.
with one as (
  insert into jobwell.jobs (id, queue, task, rank, gate, tenant, lock_key, bytes, args, meta, state, enqueued_at, run_at, ready_at, deadline)
  select :id::uuid, :queue, :task, :rank::smallint, :gate::bigint, :tenant, :lock_key, :bytes::integer, :args::json, :meta::json,
         case when t.due <= t.now then 'ready' else 'scheduled' end, t.now, t.due, case when t.due <= t.now then t.now end,
         greatest(t.now, t.due) + make_interval(secs => :deadline::float8)
    from (select n.now, coalesce(:run_at::timestamptz, n.now + make_interval(secs => :delay::float8)) as due
            from (select jobwell.now() as now offset 0) n) t
  returning state)
select jobwell.wake(array[:queue]) from one where state = 'ready';

-- name: insert_many
-- Many jobs by arrays: no parameter per row, so no limit of the protocol.
with n as materialized (select jobwell.now() as now),
given as materialized (
  select g.*, coalesce(g.run_at, n.now + make_interval(secs => g.delay)) as due, n.now
    from n, unnest(:id::uuid[], :queue::text[], :task::text[], :rank::smallint[], :gate::bigint[], :tenant::text[], :lock_key::text[],
                   :bytes::integer[], :args::text[], :run_at::timestamptz[], :delay::float8[], :deadline::float8[])
      as g(id, queue, task, rank, gate, tenant, lock_key, bytes, args, run_at, delay, deadline)),
added as (
  insert into jobwell.jobs (id, queue, task, rank, gate, tenant, lock_key, bytes, args, meta, state, enqueued_at, run_at, ready_at, deadline)
  select g.id, g.queue, g.task, g.rank, g.gate, g.tenant, g.lock_key, g.bytes, case when g.bytes <= :inline::integer then g.args::json end,
         :meta::json, case when g.due <= g.now then 'ready' else 'scheduled' end, g.now, g.due,
         case when g.due <= g.now then jobwell.now() end, greatest(g.now, g.due) + make_interval(secs => g.deadline)
    from given g),
apart as (
  insert into jobwell.payloads (id, args) select g.id, g.args::json from given g where g.bytes > :inline::integer)
select jobwell.wake(array(select distinct g.queue from given g where g.due <= g.now));

-- name: copy_jobs
-- Thousands of jobs: rows stream in, ids were made by the producer.
copy jobwell.jobs (id, queue, task, rank, gate, tenant, lock_key, bytes, args, meta, state, enqueued_at, run_at, ready_at, deadline)
from stdin (format binary);

-- name: copy_payloads
copy jobwell.payloads (id, args) from stdin (format binary);

-- name: wake
select jobwell.wake(:queues::text[]);

-- name: savepoint
-- Of one bulk within the caller's transaction.
savepoint jobwell;

-- name: release
release savepoint jobwell;

-- name: rollback_to_savepoint
rollback to savepoint jobwell;

-- name: transaction
-- Numbers as text, for any driver.
select pg_current_xact_id()::text;

-- name: transaction_now
select pg_current_xact_id_if_assigned()::text;

-- name: transaction_status
select pg_xact_status(:id::text::xid8);

-- name: now
select jobwell.now();

-- name: now_as_text
-- Microseconds since 1970, for any driver.
select (extract(epoch from jobwell.now()) * 1000000)::bigint::text;

-- name: claim
select * from jobwell.claim(:worker, :claim, :queues, :gates, :want, :from_rank, :after_gate, :after_tenant, :bytes, :lanes::json, true);

-- name: payloads
-- Arguments that do not stand in the row, for jobs just claimed.
select id, args::text from jobwell.payloads where id = any (:ids);

-- name: gates
-- The gates that have ready jobs in these queues, with one task each: how a worker learns of gates declared elsewhere.
with recursive hop as (
  select q.queue, f.rank, f.gate, f.task from unnest(:queues::text[]) q(queue) cross join lateral (
    select j.rank, j.gate, j.task from jobwell.jobs j where j.state = 'ready' and j.queue = q.queue order by j.rank, j.gate limit 1) f
  union all
  select h.queue, f.rank, f.gate, f.task from hop h cross join lateral (
    select j.rank, j.gate, j.task from jobwell.jobs j
     where j.state = 'ready' and j.queue = h.queue and (j.rank, j.gate) > (h.rank, h.gate) order by j.rank, j.gate limit 1) f)
select distinct gate, task from (select * from hop limit 5000) h;

-- name: finish
select * from jobwell.finish(:ids, :claims, :results, :notes);

-- name: fail
select * from jobwell.fail(:given::json);

-- name: retry
select * from jobwell.retry(:given::json);

-- name: postpone
select * from jobwell.postpone(:given::json);

-- name: unstarted
select * from jobwell.unstarted(:given::json);

-- name: cancelled
select * from jobwell.cancelled(:given::json);

-- name: held_by
-- What the store says this worker runs: compared with the worker's memory after a lost answer.
select id, claim_id from jobwell.jobs where state = 'running' and worker = :worker;

-- name: flip_due
select flipped, next_in from jobwell.flip_due(:limit::integer);

-- name: crash
select * from jobwell.crash(:ids::uuid[], :claims::uuid[], :hows::text[], :bound::integer);

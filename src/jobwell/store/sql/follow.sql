-- name: there
-- Which of these jobs are anywhere.
select j.id from jobwell.jobs j where j.id = any (:ids::uuid[]) union
select q.id from jobwell.quarantine q where q.id = any (:ids::uuid[]) union
select f.id from jobwell.finished f where f.id = any (:ids::uuid[]);

-- name: insert
-- Jobs that wait. Where what they follow stands is looked at when the transaction commits (functions/follow.sql); a job behind a
-- group that is stored with it has nothing to look at: what it follows was written down with the group. A time that cannot be reckoned
-- with is refused here: at the release it would stand in the way of the job that ends.
with n as materialized (select jobwell.now() as now),
given as materialized (
  select g.*, n.now, greatest(n.now, coalesce(g.run_at, n.now + make_interval(secs => g.delay))) + make_interval(secs => g.deadline) + interval '100 years' as farthest
    from n, unnest(:id::uuid[], :queue::text[], :task::text[], :rank::smallint[], :gate::bigint[], :tenant::text[], :lock_key::text[],
                   :bytes::integer[], :args::text[], :run_at::timestamptz[], :delay::float8[], :deadline::float8[], :open::integer[], :ended::boolean[])
      as g(id, queue, task, rank, gate, tenant, lock_key, bytes, args, run_at, delay, deadline, open, ended)),
added as (
  insert into jobwell.jobs (id, queue, task, rank, gate, tenant, lock_key, bytes, args, meta, state, linked, enqueued_at, run_at, ready_at, deadline)
  select g.id, g.queue, g.task, g.rank, g.gate, g.tenant, g.lock_key, g.bytes, case when g.bytes <= :inline::integer then g.args::json end,
         :meta::json, 'waiting', true, g.now, coalesce(g.run_at, g.now), null, nullif(g.farthest, g.farthest)
    from given g),
apart as (
  insert into jobwell.payloads (id, args) select g.id, g.args::json from given g where g.bytes > :inline::integer),
followed as (
  insert into jobwell.follows (job, after) select * from unnest(:job::uuid[], :after::uuid[])),
noted as (
  insert into jobwell.unsettled (transaction, job) select pg_current_xact_id(), g.id from given g where :fresh::boolean)
insert into jobwell.waits (job, open, ended, delay, run_at, deadline)
select g.id, g.open, g.ended, g.delay, g.run_at, g.deadline from given g;

-- name: link
-- Jobs of a group, just stored by this transaction: nobody else can see them yet, so nothing has to be looked at. If some are not
-- its own they are marked when they are looked at.
with linked as (
  update jobwell.jobs j set linked = true where :mine::boolean and j.id = any (:ids::uuid[]) and not j.linked)
insert into jobwell.follows (job, after) select :job::uuid, unnest(:ids::uuid[]);

-- name: before
-- What a job follows: what is still open first, with the state in which it is now.
select f.after, f.state, coalesce(j.state, f.state) as now, coalesce(j.task, q.task) as task from jobwell.follows f
  left join jobwell.jobs j on j.id = f.after left join jobwell.quarantine q on q.id = f.after
 where f.job = :id order by f.state = 'succeeded', f.state <> 'live', f.after limit :limit;

-- name: behind
-- What follows a job.
select f.job, coalesce(j.state, case when q.id is not null then 'failed' end,
         (select x.state from jobwell.finished x where x.id = f.job limit 1), 'gone') as state, coalesce(j.task, q.task) as task
  from jobwell.follows f left join jobwell.jobs j on j.id = f.job left join jobwell.quarantine q on q.id = f.job
 where f.after = :id order by f.job limit :limit;

-- name: counts
select count(*) filter (where f.state = 'live')::integer, count(*) filter (where f.state = 'succeeded')::integer,
       count(*) filter (where f.state = 'failed')::integer, count(*) filter (where f.state = 'discarded')::integer,
       count(*) filter (where f.state in ('cancelled', 'gone'))::integer, (select w.ended from jobwell.waits w where w.job = :id),
       (select count(*)::integer from jobwell.follows b where b.after = :id)
  from jobwell.follows f where f.job = :id;

-- name: forget
-- Of jobs that are nowhere any more. Ids begin with their time, so the old ones stand first.
delete from jobwell.follows f where f.ctid = any (array(
  select o.ctid from jobwell.follows o
   where o.job < (lpad(to_hex(((extract(epoch from jobwell.now()) - :seconds) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid
     and not exists (select from jobwell.jobs j where j.id = o.job) and not exists (select from jobwell.quarantine q where q.id = o.job)
     and not exists (select from jobwell.finished x where x.id = o.job)
   order by o.job limit :limit))
returning f.job;

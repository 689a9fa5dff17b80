-- name: facts
-- Where a job stands and who could run it, or how it ended, in one statement: what is told belongs to one moment.
with j as materialized (
  select 1 as place, id, state, task, queue, rank, gate, tenant, lock_key, attempt, run_at, ready_at, started_at, deadline, worker,
         null::timestamptz as ended_at, null as reason, null as said from jobwell.jobs where id = :id
  union all
  select 2, id, state, task, queue, rank, 0, tenant, '', attempt, run_at, null, started_at, null, worker, finished_at, null, note
    from jobwell.finished where id = :id
  union all
  select 3, id, 'failed', task, queue, rank, gate, tenant, lock_key, attempt, run_at, null, started_at, deadline, worker, failed_at, reason,
         coalesce(error_type || ': ', '') || coalesce(message, '') from jobwell.quarantine where id = :id
  order by place limit 1),
apart as materialized ( -- suspects stand behind their task's gate, turned over by a number of its own (core/ids.py)
  select coalesce(j.place = 1 and (c.spec ->> 'executor' = 'process' or j.gate # 418431069797 = (c.spec ->> 'gate')::bigint), false) as apart
    from j left join jobwell.catalog c on c.task = j.task),
w as materialized (
  select w.id, w.name, w.slots, w.busy, w.children, w.state = 'live' and w.lease_until > jobwell.now() as live,
         (select queue from j) = any (w.queues) as serves, w.tasks = '{}' or (select task from j) = any (w.tasks) as knows,
         w.state <> 'dead' and w.lease_until > jobwell.now() as there
    from jobwell.workers w),
pause as (
  select name, paused_at, paused_by, paused_why, paused_until from jobwell.queues
   where name in ((select queue from j), '*') and (paused_until is null or paused_until > jobwell.now()) order by name desc limit 1),
holder as (
  select h.id, h.started_at from j join jobwell.jobs h on h.state = 'running' and h.lock_key = j.lock_key and h.lock_key <> '' and h.id <> j.id
   where j.state = 'ready' limit 1)
select jobwell.now(), j.id, j.state, j.task, j.queue, j.lock_key, j.attempt, j.run_at, j.ready_at, j.started_at, j.deadline, j.ended_at, j.reason, j.said,
       p.name, p.paused_at, p.paused_by, p.paused_why, p.paused_until, h.id, h.started_at,
       (select count(*)::integer from w where live), (select count(*)::integer from w where live and serves), (select count(*)::integer from w where live and serves and knows),
       (select coalesce(sum(slots), 0)::integer from w where live and serves and knows), (select coalesce(sum(busy), 0)::integer from w where live and serves and knows),
       (select w.name from w where w.id = j.worker), (select w.there from w where w.id = j.worker),
       (select count(*)::integer from (select from jobwell.jobs b where j.state = 'ready' and b.state = 'ready' and b.queue = j.queue and b.rank < j.rank limit :cap) c),
       (select count(*)::integer from (select b.ready_at, b.id from jobwell.jobs b where j.state = 'ready' and b.state = 'ready' and b.queue = j.queue and b.rank = j.rank
           and b.gate = j.gate and b.tenant = j.tenant limit :cap) c where (c.ready_at, c.id) < (j.ready_at, j.id)),
       a.error_type, a.message, c.at, c.actor, (select apart from apart), (select coalesce(sum(children), 0)::integer from w where live and serves and knows),
       (select coalesce(sum(least(w.children, r.jobs)), 0)::integer from w cross join lateral (
          select count(*)::integer as jobs from jobwell.jobs r left join jobwell.catalog k on k.task = r.task
           where (select apart from apart) and r.state = 'running' and r.worker = w.id and (k.spec ->> 'executor' = 'process' or r.gate <> (k.spec ->> 'gate')::bigint)) r where live and serves and knows), j.tenant
  from j left join pause p on true left join holder h on true left join jobwell.cancels c on c.job_id = j.id
  left join lateral (select error_type, message from jobwell.attempts a where a.job_id = j.id order by a.ended_at desc limit 1) a on true;

-- name: key
-- What the lock of a ready job says, besides "one at a time".
select k.busy = 'skip', r.wait::float8, o.id, o.state
  from jobwell.jobs j join jobwell.gates k on k.gate = j.gate
  left join lateral (select u.tats from jobwell.limit_uses u where u.subject = 'key:' || j.lock_key order by u.turn desc limit 1) u on true
 cross join lateral jobwell.rate_room(k.key_rates, u.tats, (select jobwell.now()), 1) r
  left join lateral (
    select x.id, x.state from (
      (select r.id, r.state from jobwell.jobs r where r.state = 'ready' and r.lock_key = j.lock_key and r.lock_key <> '' and r.id < j.id order by r.id limit 1)
      union all
      (select r.id, r.state from jobwell.jobs r where r.state in ('scheduled', 'retrying') and r.lock_key = j.lock_key and r.lock_key <> ''
          and r.attempt + r.postponements > 0 limit 1)) x
     order by x.id limit 1) o on k.ordered
 where j.id = :id and j.lock_key <> '' and j.state = 'ready';

-- name: tail
-- Where the young end of today's finished jobs begins: so many pages are read for the pace, however many there are.
select greatest(0, coalesce(pg_relation_size(c.oid) / current_setting('block_size')::integer, 0) - :pages)::bigint, jobwell.now()
  from (select to_regclass('jobwell.finished_' || to_char(jobwell.now() at time zone 'utc', 'YYYYMMDD'))) c(oid);

-- name: pace
-- How fast jobs of a queue have ended lately, and those of one lane in it.
with recent as materialized (
  select f.finished_at, f.task = :task and f.tenant = :tenant as own from jobwell.finished f
   where f.finished_at > :now::timestamptz - make_interval(secs => :seconds) and f.finished_at <= :now::timestamptz
     and f.ctid >= ('(' || :page || ',0)')::tid and f.queue = :queue)
select count(*)::integer, extract(epoch from :now::timestamptz - min(finished_at))::float8,
       count(*) filter (where own)::integer, extract(epoch from :now::timestamptz - min(finished_at) filter (where own))::float8
  from recent;

-- name: slots
-- What the workers that know a job's task have for it: of each that has pools, the one that serves its queue. `may`: with borrowed ones.
with j as materialized (
  select c.queue, c.task, coalesce((k.spec ->> 'cost')::integer, 1) as cost, k.spec ->> 'memory' is not null as memory
    from jobwell.jobs c left join jobwell.catalog k on k.task = c.task where c.id = :id),
w as materialized (
  select coalesce(p.may, w.slots) as slots, coalesce(p.busy, w.busy) as busy, p.may is not null as pooled, w.held, j.cost
    from j join jobwell.workers w on w.state = 'live' and w.lease_until > jobwell.now() and j.queue = any (w.queues)
                                 and (w.tasks = '{}' or j.task = any (w.tasks))
    left join lateral (
      select k.may, k.busy from json_to_recordset(w.pools) k(queues json, may integer, busy integer)
       where j.queue in (select json_array_elements_text(k.queues)) limit 1) p on true)
select coalesce(sum(slots), 0)::integer, coalesce(sum(busy), 0)::integer, count(*) filter (where pooled)::integer,
       (select cost from j), count(*) filter (where slots - busy >= cost)::integer,
       coalesce((select memory or cost > 1 from j), false), count(*) filter (where held <> '')::integer, max(held) from w;

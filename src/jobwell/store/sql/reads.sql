-- name: queues
-- Counts are capped: a page must not cost more than the table is long.
with named as (
  select unnest(:queues::text[]) as queue
  union
  select queue from (
    with recursive hop as (
      (select queue from jobwell.jobs where state = 'ready' order by queue limit 1)
      union all
      select n.queue from hop h cross join lateral (
        select j.queue from jobwell.jobs j where j.state = 'ready' and j.queue > h.queue order by j.queue limit 1) n)
    select queue from hop limit 500) found)
select q.queue,
       (select count(*) from (select from jobwell.jobs j where j.state = 'ready' and j.queue = q.queue limit :cap) c) as ready,
       (select extract(epoch from jobwell.now() - min(o.ready_at))::float8 from (
          select j.ready_at from jobwell.jobs j where j.state = 'ready' and j.queue = q.queue limit :cap) o) as oldest
  from named q order by q.queue;

-- name: states
select s.state, (select count(*) from (select from jobwell.jobs j where j.state = s.state limit :cap) c) as jobs
  from unnest(array['ready', 'running', 'scheduled', 'retrying', 'waiting']) s(state)
union all
select 'quarantined', count(*) from (select from jobwell.quarantine limit :cap) c
union all
select 'finished in the last hour', count(*) from (
  select from jobwell.finished f where f.finished_at > jobwell.now() - interval '1 hour' limit :cap) c;

-- name: paused
select name, paused_at, paused_by, paused_why, paused_until from jobwell.queues
 where paused_until is null or paused_until > jobwell.now() order by name limit 500;

-- name: list_live
select id, state, task, queue, 100 - rank as priority, tenant, attempt, failures, enqueued_at, run_at, started_at, null::timestamptz as ended_at, null as note
  from jobwell.jobs j
 where (:state::text is null or j.state = :state) and (:queue::text is null or j.queue = :queue)
   and (:task::text is null or j.task = :task) and (:tenant::text is null or j.tenant = :tenant)
   and (:since::timestamptz is null or j.enqueued_at >= :since) and (:until::timestamptz is null or j.enqueued_at < :until)
   and (:ids::uuid[] is null or j.id = any (:ids)) and (:before::uuid is null or j.id < :before)
 order by id desc limit :limit;

-- name: list_finished
select id, state, task, queue, 100 - rank as priority, tenant, attempt, failures, enqueued_at, run_at, started_at, finished_at as ended_at, note
  from jobwell.finished j
 where (:state::text is null or j.state = :state) and (:queue::text is null or j.queue = :queue)
   and (:task::text is null or j.task = :task) and (:tenant::text is null or j.tenant = :tenant)
   and (:since::timestamptz is null or j.enqueued_at >= :since) and (:until::timestamptz is null or j.enqueued_at < :until)
   and (:ids::uuid[] is null or j.id = any (:ids)) and (:before::uuid is null or j.id < :before)
 order by id desc limit :limit;

-- name: list_quarantine
select id, 'failed' as state, task, queue, 100 - rank as priority, tenant, attempt, failures, enqueued_at, run_at, started_at, failed_at as ended_at, reason as note,
       code, error_type, message, fingerprint, origin
  from jobwell.quarantine j
 where (:reason::text is null or j.reason = :reason) and (:fingerprint::text is null or j.fingerprint = :fingerprint)
   and (:queue::text is null or j.queue = :queue)
   and (:task::text is null or j.task = :task) and (:tenant::text is null or j.tenant = :tenant)
   and (:since::timestamptz is null or j.enqueued_at >= :since) and (:until::timestamptz is null or j.enqueued_at < :until)
   and (:ids::uuid[] is null or j.id = any (:ids)) and (:before::uuid is null or j.id < :before)
 order by id desc limit :limit;

-- name: one
-- A job wherever it stands now. One statement, so that a job on the move is seen exactly once.
select * from (
  select 1 as place, id, state, task, queue, 100 - rank as priority, tenant, lock_key, attempt, failures, crashes, losses, postponements, bytes,
         enqueued_at, run_at, started_at, null::timestamptz as ended_at, deadline, worker, null as reason, null as code, null as error_type,
         null as message, null as traceback, null as origin, null as note, args::text, meta::text, null as result, dedup_key, dedup
    from jobwell.jobs where id = :id
  union all
  select 2, id, state, task, queue, 100 - rank, tenant, '', attempt, failures, 0, 0, 0, bytes, enqueued_at, run_at, started_at, finished_at, null,
         worker, null, null, null, null, null, null, note, args::text, meta::text, result::text, null, null
    from jobwell.finished where id = :id
  union all
  select 3, id, 'failed', task, queue, 100 - rank, tenant, lock_key, attempt, failures, crashes, losses, postponements, bytes, enqueued_at, run_at,
         started_at, failed_at, deadline, worker, reason, code, error_type, message, traceback, origin, null, args::text, meta::text, null, dedup_key, dedup
    from jobwell.quarantine where id = :id) found
order by place limit 1;

-- name: payload
select args::text from jobwell.payloads where id = :id;

-- name: attempts
select attempt, outcome, kind, error_type, message, traceback, started_at, ended_at, next_at, worker, note, origin, queue
  from jobwell.attempts where job_id = :id order by ended_at limit :limit;

-- name: find
-- Ids that begin with what the person typed.
select id from (
  select id from jobwell.jobs where id between :low and :high
  union select id from jobwell.quarantine where id between :low and :high
  union select id from jobwell.finished where id between :low and :high) f order by id limit 3;

-- name: actions_on
-- What people did to one job since it came. An action on many names up to 500 jobs in a row; the text is looked through first,
-- since it costs less than to read it as JSON.
select at, actor, action, detail::text from jobwell.audit
 where at >= :since and action = any (:actions::text[]) and (target = :id::uuid::text or detail::text like '%' || :id::uuid::text || '%')
 order by at, id limit :limit;

-- name: names_of
select id, name, host from jobwell.workers where id = any (:workers::uuid[]);

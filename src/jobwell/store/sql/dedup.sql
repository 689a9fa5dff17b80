-- name: add
-- Jobs with keys that nobody holds. For any driver: parameters and answers as text.
select jobwell.dedup_add(:given::json, :meta::json, :inline::integer);

-- name: suppress
-- What becomes of a call whose key is held.
select key, id::text, task, state, outcome from jobwell.dedup_suppress(:given::json, :meta::json, :inline::integer);

-- name: turn
-- Larger calls of one scope go one after the other, smaller ones between them: two that put in the same keys in another order would
-- wait for each other for ever.
select case when :alone::boolean then pg_advisory_xact_lock(hashtextextended('jobwell.dedup:' || :scope::text, 0))
            else pg_advisory_xact_lock_shared(hashtextextended('jobwell.dedup:' || :scope::text, 0)) end;

-- name: hit
-- Suppressed calls whose transaction was undone: counted after it.
insert into jobwell.dedup_hits (task, key, reason, holder, state, tenant)
select g.task, g.key, g.reason, g.holder, g.state, g.tenant
  from json_to_recordset(:given::json) as g(task text, key text, reason text, holder uuid, state text, tenant text);

-- name: totals
-- Suppressed calls by task and reason: those that are listed and those that are listed no more.
select task, reason, sum(hits)::bigint, max(last) from (
  select task, reason, hits, null::timestamptz as last from jobwell.dedup_counts
  union all
  select task, reason, count(*), max(at) from jobwell.dedup_hits group by task, reason) c
 where :task::text is null or task = :task group by task, reason order by task, reason;

-- name: latest
-- The last ones, newest first.
select at, task, key, reason, holder, state, tenant from jobwell.dedup_hits
 where (:task::text is null or task = :task) and (:key::text is null or key = :key) order by id desc limit :limit;

-- name: holders
select key, id, task, state, since, until, void from (
  select j.dedup_key as key, j.id, j.task, j.state, j.enqueued_at as since, null::timestamptz as until, false as void from jobwell.jobs j
   where j.dedup in ('done', 'started') and j.dedup_key = :key
  union all
  select d.key, d.job_id, d.task, coalesce(j.state, 'over'), d.since, d.until, d.until <= (select jobwell.now()) or (j.id is null and jobwell.dedup_void(d.job_id))
    from jobwell.dedup d left join jobwell.jobs j on j.id = d.job_id where d.key = :key) h;

-- name: key_of
-- The key of a job, wherever it stands.
select dedup_key from jobwell.jobs where id = :id and dedup_key is not null
union select dedup_key from jobwell.quarantine where id = :id and dedup_key is not null
union select key from jobwell.dedup where job_id = :id;

-- name: release
-- Exactly what was seen: a key that stands for another job by now is left alone.
with freed as (
  update jobwell.jobs j set dedup = 'released' where j.id = :id and j.dedup_key = :key and j.dedup in ('done', 'started', 'window') returning j.id),
closed as (
  delete from jobwell.dedup d where d.key = :key and d.job_id = :id returning d.job_id)
select id from freed union select job_id from closed;

-- name: expire
-- Windows that are over for a while, in small commits. Whoever takes one over at this moment is left alone.
with gone as (
  delete from jobwell.dedup where key = any (array(
    select d.key from jobwell.dedup d where d.until < (select jobwell.now()) - interval '1 minute' order by d.until limit :limit for update skip locked))
  returning 1)
select count(*)::integer from gone;

-- name: expire_void
-- And those whose job has left its work undone: what tells so may be kept for a shorter time than the window lasts.
with page as materialized (
  select d.key, d.job_id from jobwell.dedup d where d.key > :after order by d.key limit :limit for update skip locked),
gone as (
  delete from jobwell.dedup d using page p where d.key = p.key and jobwell.dedup_void(p.job_id) returning 1)
select (select count(*) from page)::integer, (select max(key) from page), (select count(*) from gone)::integer;

-- name: fold
-- Suppressed calls that are listed no more, into their counts: older than the retention, or beyond the newest so many.
with old as materialized (
  select h.id from jobwell.dedup_hits h
   where h.at < (select jobwell.now()) - make_interval(secs => :seconds) or h.id <= (select max(m.id) from jobwell.dedup_hits m) - :keep::bigint
   order by h.id limit :limit for update skip locked),
gone as (
  delete from jobwell.dedup_hits h using old o where h.id = o.id returning h.task, h.reason),
counted as (
  insert into jobwell.dedup_counts as c (task, reason, hits) select g.task, g.reason, count(*) from gone g group by g.task, g.reason order by 1, 2
  on conflict (task, reason) do update set hits = c.hits + excluded.hits)
select count(*)::integer from gone;

-- name: held
-- Keys that a job holds, as far as it can be seen.
select key from jobwell.dedup_holders(:keys::text[], false);

-- name: copy_jobs
-- As `jobs.copy_jobs`, with keys.
copy jobwell.jobs (id, queue, task, rank, gate, tenant, lock_key, bytes, args, meta, state, enqueued_at, run_at, ready_at, deadline, dedup_key, dedup)
from stdin (format binary);

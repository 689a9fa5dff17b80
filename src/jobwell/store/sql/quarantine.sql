-- name: count
select count(*) from jobwell.quarantine q
 where (:until::timestamptz is null or q.failed_at <= :until) and (:ids::uuid[] is null or q.id = any (:ids))
   and (:fingerprint::text is null or q.fingerprint = :fingerprint) and (:reason::text is null or q.reason = :reason) and (:queue::text is null or q.queue = :queue)
   and (:task::text is null or q.task = :task) and (:tenant::text is null or q.tenant = :tenant);

-- name: groups
-- Failures of one kind, the one that failed last first. Counted from the quarantine; what people have said stands beside. The state
-- is the whole group's: a failure that the filter hides makes it new again too.
with counted as (
  select q.fingerprint, count(*) as jobs, min(q.failed_at) as first_seen, max(q.failed_at) as last_seen,
         count(distinct q.tenant) filter (where q.tenant <> '') as tenants
    from jobwell.quarantine q
   where (:reason::text is null or q.reason = :reason) and (:queue::text is null or q.queue = :queue) and (:task::text is null or q.task = :task)
     and (:tenant::text is null or q.tenant = :tenant) and (:fingerprint::text is null or q.fingerprint = :fingerprint)
   group by q.fingerprint),
said as (
  select c.*, g.owner, g.note, g.set_at, g.set_by,
         case when g.state = 'resolved' and exists (
                select from jobwell.quarantine x where x.fingerprint = c.fingerprint and x.failed_at > g.state_at)
              then 'new again' else coalesce(g.state, 'new') end as state
    from counted c left join jobwell.quarantine_groups g on g.fingerprint = c.fingerprint),
chosen as (
  select s.* from said s where :state::text is null or s.state = :state or (:state = 'open' and s.state <> 'resolved')
   order by s.last_seen desc, s.fingerprint limit :limit)
select c.fingerprint, e.task, e.reason, e.code, e.error_type, e.origin, e.message, c.jobs, c.first_seen, c.last_seen, c.tenants, e.names, e.examples,
       coalesce(c.owner, e.owner) as owner, c.state, c.note, c.set_at, c.set_by
  from chosen c cross join lateral (
    select (array_agg(x.id order by x.failed_at desc))[1:3] as examples, (array_agg(distinct x.tenant) filter (where x.tenant <> ''))[1:3] as names,
           (array_agg(x.task order by x.failed_at desc))[1] as task, (array_agg(x.reason order by x.failed_at desc))[1] as reason,
           (array_agg(x.code order by x.failed_at desc))[1] as code, (array_agg(x.error_type order by x.failed_at desc))[1] as error_type,
           (array_agg(x.origin order by x.failed_at desc))[1] as origin, (array_agg(left(x.message, 1000) order by x.failed_at desc))[1] as message,
           (select k.spec ->> 'owner' from jobwell.catalog k where k.task = (array_agg(x.task order by x.failed_at desc))[1]) as owner
      from (
        select q.* from jobwell.quarantine q
         where q.fingerprint = c.fingerprint
           and (:reason::text is null or q.reason = :reason) and (:queue::text is null or q.queue = :queue) and (:task::text is null or q.task = :task)
           and (:tenant::text is null or q.tenant = :tenant)
         order by q.failed_at desc limit 20) x) e
 order by c.last_seen desc, c.fingerprint;

-- name: fingerprints
-- All that there are: one step of the index for each, however many jobs have it.
with recursive hop as (
  (select q.fingerprint from jobwell.quarantine q order by q.fingerprint limit 1)
  union all
  select n.fingerprint from hop h cross join lateral (
    select q.fingerprint from jobwell.quarantine q where q.fingerprint > h.fingerprint order by q.fingerprint limit 1) n)
select fingerprint from (select fingerprint from hop limit :limit) found
union
select fingerprint from jobwell.quarantine_groups;

-- name: set
-- What is null stays as it was; an empty text takes it away.
insert into jobwell.quarantine_groups as g (fingerprint, owner, note, state, set_by)
values (:fingerprint, nullif(:owner::text, ''), nullif(:note::text, ''), coalesce(:state::text, 'new'), :actor)
on conflict (fingerprint) do update
   set owner = case when :owner::text is null then g.owner else nullif(:owner::text, '') end,
       note = case when :note::text is null then g.note else nullif(:note::text, '') end,
       state = coalesce(:state::text, g.state), state_at = case when :state::text is null then g.state_at else excluded.state_at end,
       set_at = excluded.set_at, set_by = excluded.set_by
returning g.owner, g.note, g.state, g.set_at;

-- name: arguments
-- Of jobs whose arguments are to be edited, wherever they stand.
select q.id, q.task, coalesce(q.args, (select p.args from jobwell.payloads p where p.id = q.id))::text from jobwell.quarantine q
 where q.id = any (:ids::uuid[]) and not exists (select from jobwell.jobs j where j.id = q.id) order by q.id for update of q skip locked;

-- name: look
-- One piece of the jobs that a choice names, with their arguments: to see whether they could be edited.
select q.id, q.task, coalesce(q.args, (select p.args from jobwell.payloads p where p.id = q.id))::text from jobwell.quarantine q
 where (:until::timestamptz is null or q.failed_at <= :until) and (:ids::uuid[] is null or q.id = any (:ids))
   and (:reason::text is null or q.reason = :reason) and (:fingerprint::text is null or q.fingerprint = :fingerprint)
   and (:queue::text is null or q.queue = :queue) and (:task::text is null or q.task = :task)
   and (:tenant::text is null or q.tenant = :tenant) and q.id > :after
 order by q.id limit :limit;

-- name: edit
-- Other arguments; the original ones are kept. To be run in the transaction of `arguments`, which has locked the rows.
with given as materialized (
  select * from unnest(:ids::uuid[], :args::text[], :bytes::integer[]) as g(id, args, bytes)),
kept as (
  insert into jobwell.quarantine_edits (job_id, actor, why, args)
  select q.id, :actor, :why, coalesce(q.args, (select p.args from jobwell.payloads p where p.id = q.id))
    from jobwell.quarantine q join given g on g.id = q.id),
apart as (
  insert into jobwell.payloads (id, args) select g.id, g.args::json from given g where g.bytes > :inline::integer
  on conflict (id) do update set args = excluded.args),
inline as (
  delete from jobwell.payloads p using given g where p.id = g.id and g.bytes <= :inline::integer)
update jobwell.quarantine q set args = case when g.bytes <= :inline::integer then g.args::json end, bytes = g.bytes
  from given g where q.id = g.id returning q.id;

-- name: unedit
-- As before the last edit, which was made in this transaction. To be run in it.
with gone as (
  delete from jobwell.quarantine_edits e
   where e.id = any (array(select max(l.id) from jobwell.quarantine_edits l where l.job_id = any (:ids::uuid[]) group by l.job_id))
  returning e.job_id as id, e.args, octet_length(convert_to(e.args::text, 'UTF8')) as bytes),
apart as (
  insert into jobwell.payloads (id, args) select g.id, g.args from gone g where g.bytes > :inline::integer
  on conflict (id) do update set args = excluded.args),
inline as (
  delete from jobwell.payloads p using gone g where p.id = g.id and g.bytes <= :inline::integer)
update jobwell.quarantine q set args = case when g.bytes <= :inline::integer then g.args end, bytes = coalesce(g.bytes, 0)
  from gone g where q.id = g.id;

-- name: edits
select at, actor as by, why, args::text from jobwell.quarantine_edits where job_id = :id order by id limit 100;

-- name: discard
-- A person has decided: over, with the reason. The arguments stay with it; what happened stands in attempts.
with chosen as (
  select q.id from jobwell.quarantine q where q.id = any (:ids::uuid[]) order by q.id for update skip locked),
taken as (
  delete from jobwell.quarantine q using chosen c where q.id = c.id returning q.*),
unasked as (
  delete from jobwell.cancels a using chosen c where a.job_id = c.id and not exists (select from jobwell.jobs j where j.id = c.id)),
kept as (
  insert into jobwell.finished (id, finished_at, enqueued_at, run_at, started_at, worker, rank, attempt, failures, bytes,
                                queue, task, state, tenant, args, meta, note)
  select t.id, (select jobwell.now()), t.enqueued_at, t.run_at, t.started_at, t.worker, t.rank, t.attempt, t.failures, t.bytes,
         t.queue, t.task, 'failed', t.tenant, t.args, t.meta,
         'discarded by ' || :actor::text || ': ' || :why::text || ' (it had failed as ' || t.reason || coalesce(': ' || left(t.message, 300), '') || ')'
    from taken t where not exists (select from jobwell.jobs j where j.id = t.id))
select id from taken;

-- name: count_held
-- Of those that a retry would take: how many it will refuse, because an equal job stands for them now.
select count(*) from jobwell.quarantine q
 where (:until::timestamptz is null or q.failed_at <= :until) and (:ids::uuid[] is null or q.id = any (:ids))
   and (:fingerprint::text is null or q.fingerprint = :fingerprint) and (:reason::text is null or q.reason = :reason) and (:queue::text is null or q.queue = :queue)
   and (:task::text is null or q.task = :task) and (:tenant::text is null or q.tenant = :tenant)
   and q.dedup_key is not null and q.dedup <> 'released'
   and exists (select from jobwell.dedup_holders(array[q.dedup_key], q.dedup = 'window') h where h.id <> q.id);

-- name: held
-- Who stands for these now.
select q.id, q.dedup_key, h.id, h.state from jobwell.quarantine q
  left join lateral (select d.id, d.state from jobwell.dedup_holders(array[q.dedup_key], q.dedup = 'window') d where d.id <> q.id limit 1) h on true
 where q.id = any (:ids::uuid[]) and q.dedup_key is not null and q.dedup <> 'released';

-- name: of_stages
-- Of these, those that are jobs of a run's stage.
select q.id from jobwell.quarantine q
 where q.id = any (:ids::uuid[]) and exists (select from jobwell.run_stages t where t.task = q.task and t.kind = 'items');

-- name: retry_keyed
select id, after from jobwell.retry_keyed(:ids::uuid[], :pace::float8, :start::timestamptz);

-- name: retry
-- Those that have a key are only named: each is a new enqueue, which an equal job may stand in the way of (`retry_keyed`).
-- Jobs of a run's stage stay: their items have failed with them, and are open again by a retry of the run only.
-- Back to ready with a new attempt budget and a new deadline; the history stays in attempts. Returns what was moved, and with a
-- pace (jobs in a second) the moment after the last of them: each waits as scheduled for its own, so nothing has to stay alive.
-- It counts as enqueued now, so that the deadline keeps its length however often this is done; the id tells the first time.
-- The deadline counts from the moment at which the job may run. That of a turn is kept, so that the wait for it is no part of the
-- deadline's length in the next retry: what comes back at a pace again and again has as long each time.
with clock as materialized (select jobwell.now() as now),
chosen as (
  select q.id, coalesce(q.dedup, 'released') <> 'released' as keyed from jobwell.quarantine q
   where (:until::timestamptz is null or q.failed_at <= :until) and not exists (select from jobwell.jobs j where j.id = q.id)
     and not q.task = any (array(select t.task from jobwell.run_stages t where t.kind = 'items'))
     and (:ids::uuid[] is null or q.id = any (:ids)) and (:fingerprint::text is null or q.fingerprint = :fingerprint) and (:reason::text is null or q.reason = :reason) and (:queue::text is null or q.queue = :queue)
     and (:task::text is null or q.task = :task) and (:tenant::text is null or q.tenant = :tenant)
   order by q.id limit :limit for update skip locked),
taken as (
  delete from jobwell.quarantine q using chosen c where q.id = c.id and not c.keyed returning q.*),
-- It may have failed before it was told that it should stop; that was meant for its former life.
unasked as (
  delete from jobwell.cancels a using chosen c where a.job_id = c.id and not c.keyed),
timed as (
  select t.*, c.now, u.due as last_turn, t.deadline - greatest(t.enqueued_at, u.due) as length, case when :pace::float8 is null then c.now
           else greatest(c.now, :start::timestamptz) + make_interval(secs => (row_number() over (order by t.id) - 1) / :pace::float8) end as due
    from clock c cross join taken t left join jobwell.quarantine_turns u on u.job_id = t.id),
turned as (
  insert into jobwell.quarantine_turns (job_id, due) select t.id, t.due from timed t where t.due > t.now or t.last_turn is not null
  on conflict (job_id) do update set due = excluded.due),
back as (
  insert into jobwell.jobs (alone, id, gate, enqueued_at, run_at, ready_at, deadline, rank, attempt, failures, crashes, losses, postponements,
                            bytes, queue, task, state, tenant, lock_key, args, meta)
  select t.alone, t.id, t.gate, t.now, t.due, case when t.due <= t.now then t.now end, t.due + t.length,
         t.rank, t.attempt, 0, 0, 0, 0, t.bytes, t.queue, t.task, case when t.due <= t.now then 'ready' else 'scheduled' end,
         t.tenant, t.lock_key, t.args, t.meta
    from timed t
  returning id, queue, state, run_at)
select b.id, case when :pace::float8 is not null then b.run_at + make_interval(secs => 1 / :pace::float8) end as after,
       case when b.state = 'ready' then jobwell.wake(array[b.queue]) end, false from back b
union all
select c.id, null, null, true from chosen c where c.keyed;

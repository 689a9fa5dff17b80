-- name: ready
-- The jobs that could be claimed, in the order in which a test runs them: rank, then the oldest.
select id, queue, rank, gate, tenant, lock_key, (extract(epoch from ready_at) * 1000000)::bigint as ready_us
  from jobwell.jobs
 where state = 'ready' and queue = any (:queues) and task = any (:tasks) and (:ids::uuid[] is null or id = any (:ids::uuid[]))
 order by rank, ready_at, id limit :limit;

-- name: hold_others
-- Every other ready job of a lane that nobody holds, held for the length of the transaction: a claim passes over what another one holds.
select id from jobwell.jobs
 where state = 'ready' and queue = :queue and rank = :rank and gate = :gate and tenant = :tenant and id <> :id for update skip locked;

-- name: next_due
-- Items of runs that are to be tried again wait like jobs that are.
select least((select min(run_at) from jobwell.jobs where state = any (:states) and queue = any (:queues) and task = any (:tasks)),
             (select min(l.ready_at) from jobwell.run_lots l join jobwell.run_stages t using (run_id, stage)
               where 'retrying' = any (:states) and not l.held and l.ready_at > jobwell.now() and t.queue = any (:queues) and t.task = any (:tasks)));

-- name: there
select id from jobwell.jobs where id = any (:ids) union all
select id from jobwell.finished where id = any (:ids) union all
select id from jobwell.quarantine where id = any (:ids);

-- name: all
-- Every job wherever it stands, with its arguments, in the order in which they were made.
select distinct on (f.id) f.id, f.task, f.state, f.queue, f.priority, f.tenant, f.attempt, f.failures, f.losses, f.enqueued_at, f.run_at,
       f.deadline, coalesce(f.args, p.args)::text as args, f.meta::text, f.result::text, f.reason, f.code, f.error_type, f.message, f.note
  from (
  select 1 as place, id, task, state, queue, 100 - rank as priority, tenant, attempt, failures, losses, enqueued_at, run_at, deadline, args, meta,
         null::json as result, null as reason, null as code, null as error_type, null as message, null as note
    from jobwell.jobs
  union all
  select 2, id, task, state, queue, 100 - rank, tenant, attempt, failures, 0, enqueued_at, run_at, null, args, meta,
         result, null, null, null, null, note
    from jobwell.finished
  union all
  select 3, id, task, 'failed', queue, 100 - rank, tenant, attempt, failures, losses, enqueued_at, run_at, deadline, args, meta,
         null, reason, code, error_type, message, null
    from jobwell.quarantine) f
  left join jobwell.payloads p on p.id = f.id
 where (:task::text is null or f.task = :task) and (:id::uuid is null or f.id = :id)
 order by f.id, f.place;

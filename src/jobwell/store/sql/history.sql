-- name: places
-- Every row of every job, wherever it stands: a job that stood in two places would come twice.
select id, 'jobs' as place, state, attempt, failures, crashes, losses, postponements, worker, started_at, null::timestamptz as ended_at, queue, null as reason
  from jobwell.jobs
union all
select id, 'finished', state, attempt, failures, null, null, null, worker, started_at, finished_at, queue, null from jobwell.finished
union all
select id, 'quarantine', 'failed', attempt, failures, crashes, losses, postponements, worker, started_at, failed_at, queue, reason
  from jobwell.quarantine;

-- name: attempts
select job_id, attempt, outcome, worker, claim_id, started_at, ended_at, note from jobwell.attempts;

-- name: sums
select 'jobs', state, count(*) from jobwell.jobs group by state
union all
select 'finished', state, count(*) from jobwell.finished group by state
union all
select 'quarantine', 'failed', count(*) from jobwell.quarantine having count(*) > 0;

-- name: actions
-- What operators did, in the order in which they did it.
select at, action, target, detail::text from jobwell.audit where action in ('jobs.cancel', 'queues.pause', 'queues.resume') order by at, id;

-- name: asked
select job_id from jobwell.cancels;

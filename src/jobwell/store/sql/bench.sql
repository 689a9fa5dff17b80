-- name: floor_claim
-- The bare loop that drain is held against: the same table and indexes, one lane, nothing but claim and finish.
update jobwell.jobs set state = 'running', attempt = attempt + 1, claim_id = :claim, worker = :claim, started_at = clock_timestamp()
where id = any(array(select id from jobwell.jobs where state = 'ready' and queue = 'default'
                     order by rank, gate, tenant, lock_key, ready_at, id limit :want for update skip locked))
returning id, task, args::text, attempt;

-- name: floor_finish
with gone as (delete from jobwell.jobs where id = any(:ids) and claim_id = :claim returning *)
insert into jobwell.finished (id, enqueued_at, run_at, started_at, worker, rank, attempt, failures, bytes, queue, task, state, tenant, args, meta)
select id, enqueued_at, run_at, started_at, worker, rank, attempt, failures, bytes, queue, task, 'succeeded', tenant, args, meta from gone;

-- name: rest
select exists (select from jobwell.jobs);

-- name: span
select extract(epoch from max(finished_at) - min(started_at))::float8, count(*) from jobwell.finished;

-- name: results
select result::text from jobwell.finished where result is not null;

-- name: copy_out
copy jobwell.jobs to stdout (format binary);

-- name: copy_in
copy jobwell.jobs from stdin (format binary);

-- name: empty
truncate jobwell.jobs, jobwell.finished, jobwell.payloads, jobwell.attempts, jobwell.quarantine;

-- name: vacuum
vacuum (analyze) jobwell.jobs;

-- name: idle_workers
select count(*) from jobwell.workers where state = 'live' and idle;

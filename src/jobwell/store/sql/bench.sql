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

-- name: parallel
-- The most jobs that had a place at the same time, and the seconds from the first start to the last finish.
select max(n), extract(epoch from max(last) - min(first))::float8, (select count(*) from jobwell.finished)
  from (select sum(d) over (order by at, d) as n, min(at) over () as first, max(at) over () as last
          from (select started_at as at, 1 as d from jobwell.finished union all select finished_at, -1 from jobwell.finished) e) r;

-- name: starts
-- The most starts within any second, and the seconds from the first start to the last.
select max(n), extract(epoch from max(started_at) - min(started_at))::float8, count(*)
  from (select started_at, count(*) over (order by started_at range between current row and interval '999999 microseconds' following) as n
          from jobwell.finished) r;

-- name: spent
-- Jobs that have succeeded, and the attempts that all of them took.
select count(*), coalesce(sum(attempt), 0)::bigint from jobwell.finished where state = 'succeeded';

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

-- name: in_transactions
-- Connections of others that hold a transaction open, or still work.
select count(*) from pg_stat_activity
 where datname = current_database() and application_name like 'jobwell %' and pid <> pg_backend_pid() and state <> 'idle';

-- name: live_workers
select count(*) from jobwell.workers where state = 'live';

-- name: live_jobs
select count(*) from jobwell.jobs;

-- name: all_jobs
select (select count(*) from jobwell.jobs) + (select count(*) from jobwell.finished);

-- name: bare_insert
-- What a single enqueue is held against: the same row, and nothing but its INSERT.
insert into jobwell.jobs (id, queue, task, rank, gate, tenant, lock_key, bytes, args, meta, state, enqueued_at, run_at, ready_at, deadline)
values (:id, :queue, :task, :rank, :gate, '', '', :bytes, :args::json, null, 'ready', clock_timestamp(), clock_timestamp(), clock_timestamp(),
        clock_timestamp() + make_interval(secs => :deadline::float8));

-- name: now
select jobwell.now();

-- name: count_ids
select count(*) from jobwell.finished where id = any (:ids);

-- name: count_finished
select count(*) from jobwell.finished where id between :first and :last and started_at >= :since;

-- name: pace
-- From the first start to the finish of the so-maniest job, of those with ids in a range.
select extract(epoch from max(f.finished_at) - min(f.started_at))::float8, count(*)
  from (select started_at, finished_at from jobwell.finished where id between :first and :last and started_at >= :since order by finished_at limit :count) f;

-- name: size
-- Megabytes with indexes, and the rows that vacuum could not take away yet, as the server counts them.
select (pg_total_relation_size('jobwell.jobs'::regclass) / 1048576.0)::float8, pg_stat_get_dead_tuples('jobwell.jobs'::regclass);

-- name: fill_ready
-- Rows by the piece, tenants by turns. Ids are in order: a version 7 for each number, 4,096 of them in a millisecond.
insert into jobwell.jobs (id, queue, task, rank, gate, tenant, bytes, args, state, enqueued_at, run_at, ready_at, deadline)
select (lpad(to_hex(:base::bigint + n / 4096), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0') || '8' || left(md5(n::text), 15))::uuid,
       :queue, :task, :rank, :gate, 't' || n % :tenants, 52, json_build_object('employee_id', n, 'event_version', '2026-01-28T10:15'),
       'ready', t.at, t.at, t.at, t.at + interval '1 day'
  from (select n, (select jobwell.now()) - interval '1 hour' + n * interval '1 microsecond' as at from generate_series(:first::bigint, :last::bigint) n) t;

-- name: fill_scheduled
insert into jobwell.jobs (id, queue, task, rank, gate, tenant, bytes, args, state, enqueued_at, run_at, ready_at, deadline)
select (lpad(to_hex(:base::bigint + n / 4096), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0') || '8' || left(md5(n::text), 15))::uuid,
       :queue, :task, :rank, :gate, 't' || n % :tenants, 52, json_build_object('employee_id', n, 'event_version', '2026-01-28T10:15'),
       'scheduled', t.at, t.at + interval '1 day', null, t.at + interval '2 days'
  from (select n, (select jobwell.now()) + n * interval '1 microsecond' as at from generate_series(:first::bigint, :last::bigint) n) t;

-- name: fill_finished
insert into jobwell.finished (id, finished_at, enqueued_at, run_at, started_at, rank, attempt, failures, bytes, queue, task, state, tenant, args)
select (lpad(to_hex(:base::bigint + n / 4096), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0') || '8' || left(md5(n::text), 15))::uuid,
       t.at, t.at, t.at, t.at, :rank, 1, 0, 52, :queue, :task, 'succeeded', 't' || n % :tenants,
       json_build_object('employee_id', n, 'event_version', '2026-01-28T10:15')
  from (select n, (select jobwell.now()) as at, :gate::bigint from generate_series(:first::bigint, :last::bigint) n) t;

-- name: vacuum_finished
vacuum (analyze) jobwell.finished;

-- name: take_turn
select pg_try_advisory_lock(hashtextextended('the bench of jobwell', 0));

-- name: patient_session
set idle_in_transaction_session_timeout = 0;

-- name: schema
select obj_description(oid, 'pg_namespace') from pg_namespace where nspname = 'jobwell_bench';

-- name: create_schema
create schema jobwell_bench;

-- name: note_schema
comment on schema jobwell_bench is 'made by jobwell bench, dropped by it';

-- name: database
select shobj_description(oid, 'pg_database') from pg_database where datname = 'jobwell_bench_pinned';

-- name: create_database
create database jobwell_bench_pinned template template0;

-- name: note_database
comment on database jobwell_bench_pinned is 'made by jobwell bench, dropped by it';

-- name: drop_database
drop database jobwell_bench_pinned with (force);

-- name: limit
-- A limit and a rate on everything, neither of which is ever reached: what is measured is what it costs to keep them.
insert into jobwell.limits (kind, name, override, set_at, set_by)
values ('queue', 'default', :override::jsonb, jobwell.now(), 'bench') on conflict do nothing;

-- name: unlimit
delete from jobwell.limits;

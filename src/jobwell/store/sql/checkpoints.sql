-- name: load
select c.value::text from jobwell.checkpoints c where c.job_id = :job and c.name = :name;

-- name: save
-- Fenced: the job's row is locked until the end of the transaction, so that nobody else can begin the job between this save and what
-- the caller commits with it. No row: the job is no longer the caller's, and nothing was written.
with mine as (
  select j.id, j.attempt from jobwell.jobs j where j.id = :job::uuid and j.claim_id = :claim::uuid and j.state = 'running' for share)
insert into jobwell.checkpoints as c (job_id, name, claim_id, attempt, saved_at, value)
select m.id, :name, :claim::uuid, m.attempt, jobwell.now(), :value::json from mine m
on conflict (job_id, name) do update
   set claim_id = excluded.claim_id, attempt = excluded.attempt, saved_at = excluded.saved_at, value = excluded.value
returning 1;

-- name: bound
-- For the rest of the caller's transaction, in which a save has locked the job's row: whatever becomes of the process, the server ends it
-- soon after the attempt's time is over, so that it holds nobody up for ever. What the session has of its own that is shorter stays.
with own as (
  select extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval) * 1000 as idle,
         extract(epoch from current_setting('statement_timeout')::interval) * 1000 as statement)
select set_config('idle_in_transaction_session_timeout', (case when idle > 0 then least(idle, :ms::bigint) else :ms::bigint end)::bigint::text, true),
       set_config('statement_timeout', (case when statement > 0 then least(statement, :ms::bigint) else :ms::bigint end)::bigint::text, true)
  from own;

-- name: clear
-- Fenced in the same way; one row for an attempt that still has its job.
with mine as (
  select j.id from jobwell.jobs j where j.id = :job::uuid and j.claim_id = :claim::uuid and j.state = 'running' for share),
gone as (
  delete from jobwell.checkpoints c using mine m where c.job_id = m.id and c.name = :name)
select 1 from mine;

-- name: of_job
select name, saved_at, attempt, value::text from jobwell.checkpoints where job_id = :job order by name limit 100;

-- name: delete_old
-- Checkpoints of jobs that will never run again: neither live nor in the quarantine. The walk goes on behind :after.
with old as materialized (
  select c.job_id, c.name from jobwell.checkpoints c where c.job_id > :after order by c.job_id limit :limit),
gone as (
  delete from jobwell.checkpoints c using old o
   where c.job_id = o.job_id and c.name = o.name and not exists (select from jobwell.jobs j where j.id = o.job_id)
     and not exists (select from jobwell.quarantine q where q.id = o.job_id)
  returning 1)
select (select count(*) from old)::integer, (select count(*) from gone)::integer, (select o.job_id from old o order by o.job_id desc limit 1);

-- name: begin
-- Begin a step, or find it as it stands. The job's row is held meanwhile: who ends or rescues the job waits, or was first, and then
-- there is no row here and nothing is written.
with mine as materialized (
  select j.id, j.attempt from jobwell.jobs j where j.id = :job and j.claim_id = :claim and j.state = 'running' for share),
there as materialized (
  select s.* from jobwell.steps s where s.job_id = :job and s.name = :name),
begun as (
  insert into jobwell.steps (job_id, name, unknown, attempt, claim_id, call, compensate)
  select m.id, :name, :unknown, m.attempt, :claim, :call, :compensate::jsonb from mine m where not exists (select from there)
  on conflict (job_id, name) do nothing
  returning 1)
select (select count(*) from begun)::integer, t.state, t.attempt, t.claim_id, t.started_at, t.kept, t.result::text, t.note, t.call
  from mine m left join there t on true;

-- name: again
-- Begin one that was found started.
with mine as materialized (
  select j.id, j.attempt from jobwell.jobs j where j.id = :job and j.claim_id = :claim and j.state = 'running' for share),
changed as (
  update jobwell.steps s
     set attempt = m.attempt, claim_id = :claim, started_at = (select jobwell.now()), unknown = :unknown, call = :call,
         compensate = :compensate::jsonb, note = null
    from mine m where s.job_id = m.id and s.name = :name and s.state = 'started')
select 1 from mine;

-- name: done
-- It has happened. Written again where the answer was lost, it changes nothing.
with mine as materialized (
  select j.id from jobwell.jobs j where j.id = :job and j.claim_id = :claim and j.state = 'running' for share),
changed as (
  update jobwell.steps s
     set state = 'done', done_at = (select jobwell.now()), kept = :kept::boolean, result = :result::json, note = :note, claim_id = :claim
    from mine m where s.job_id = m.id and s.name = :name and s.state = 'started')
select 1 from mine;

-- name: forget
-- It has not happened: as if it had not been begun.
with mine as materialized (
  select j.id from jobwell.jobs j where j.id = :job and j.claim_id = :claim and j.state = 'running' for share),
gone as (
  delete from jobwell.steps s using mine m where s.job_id = m.id and s.name = :name and s.state = 'started')
select 1 from mine;

-- name: remark
-- What is known of one whose outcome is not.
with mine as materialized (
  select j.id from jobwell.jobs j where j.id = :job and j.claim_id = :claim and j.state = 'running' for share),
changed as (
  update jobwell.steps s set note = :note from mine m where s.job_id = m.id and s.name = :name and s.state = 'started')
select 1 from mine;

-- name: of_job
select s.name, s.state, s.unknown, s.attempt, s.started_at, s.done_at, s.kept, s.result::text, s.note, s.call, s.compensate ->> 'task',
       s.undo_id, s.undone_at, s.seq
  from jobwell.steps s where s.job_id = :job order by s.seq limit :limit;

-- name: open
-- Of all jobs: steps whose outcome nobody knows, those whose undoing is not over, and those that cannot be undone until somebody says
-- what they returned. What a running job is at is none of them.
select s.job_id, coalesce(j.task, q.task, f.task), coalesce(j.state, 'failed: ' || q.reason, f.state), s.name, s.state, s.attempt, s.started_at,
       s.call, s.note, s.undo_id, u.reason
  from (select * from jobwell.steps o where o.state in ('started', 'compensating')
        union all
        select * from jobwell.steps o where o.state = 'done' and not o.kept and o.compensate is not null) s
  left join jobwell.jobs j on j.id = s.job_id
  left join jobwell.quarantine q on q.id = s.job_id
  left join lateral (select e.task, e.state from jobwell.finished e where e.id = s.job_id order by e.finished_at desc limit 1) f on true
  left join jobwell.quarantine u on u.id = s.undo_id
 where case s.state when 'compensating' then true when 'started' then j.state is distinct from 'running'
         else j.id is null and q.id is null and f.state <> 'succeeded' end
 order by s.started_at limit :limit;

-- name: hold_live
-- The job, if it lives, so that nobody claims it meanwhile.
select j.state from jobwell.jobs j where j.id = :job for update;

-- name: hold_failed
select q.reason from jobwell.quarantine q where q.id = :job for update;

-- name: over
select f.state, f.tenant, f.meta::text from jobwell.finished f where f.id = :job order by f.finished_at desc limit 1;

-- name: answer_yes
-- A person says that it has happened, or what it gave.
update jobwell.steps s
   set state = 'done', done_at = coalesce(s.done_at, (select jobwell.now())), kept = :kept::boolean, result = :result::json, note = :note
 where s.job_id = :job and s.name = :name and (s.state = 'started' or (s.state = 'done' and not s.kept and :kept::boolean)) returning s.state;

-- name: answer_no
delete from jobwell.steps s where s.job_id = :job and s.name = :name and s.state = 'started' returning 1;

-- name: undo_next
select jobwell.undo_next(:job, :tenant, :meta::json);

-- name: go_on_undoing
select jobwell.go_on_undoing(:limit::integer);

-- name: delete_from
delete from jobwell.steps s where s.job_id = :job and s.seq >= :seq returning s.name;

-- name: prune
-- Steps of jobs that are nowhere any more, and of which none is being undone. Ids begin with their time, so the old ones stand
-- first; the walk goes on behind (:after_job, :after_name).
with limits as materialized (
  select (lpad(to_hex(((extract(epoch from jobwell.now()) - :seconds) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid as before),
old as materialized (
  select s.job_id, s.name from jobwell.steps s
   where (s.job_id, s.name) > (:after_job::uuid, :after_name::text) and s.job_id < (select before from limits)
   order by s.job_id, s.name limit :limit),
gone as (
  delete from jobwell.steps s using old o
   where s.job_id = o.job_id and s.name = o.name and not exists (select from jobwell.jobs j where j.id = o.job_id)
     and not exists (select from jobwell.quarantine q where q.id = o.job_id)
     and not exists (select from jobwell.finished f where f.id = o.job_id)
     and not exists (select from jobwell.steps u where u.job_id = o.job_id and u.state = 'compensating')
  returning s.job_id)
select (select count(*) from old)::integer, (select count(*) from gone)::integer,
       (select o.job_id from old o order by o.job_id desc, o.name desc limit 1), (select o.name from old o order by o.job_id desc, o.name desc limit 1);

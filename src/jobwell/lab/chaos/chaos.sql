-- name: make
create schema chaos;
create table chaos.marks (
  call      uuid not null,
  job      uuid not null,
  attempt  integer not null,
  worker   uuid not null,
  executor text not null,
  what     text not null,
  at       timestamptz not null,
  pid      integer not null,
  primary key (call, what)
);

-- name: mark
-- Written again after a lost answer, it stays one.
insert into chaos.marks (call, job, attempt, worker, executor, what, at, pid)
select * from unnest(:call::uuid[], :job::uuid[], :attempt::integer[], :worker::uuid[], :executor::text[], :what::text[], :at::timestamptz[],
                     :pid::integer[])
on conflict do nothing;

-- name: marks
select call, job, attempt, worker, executor, what, at from chaos.marks;

-- name: consistent
begin isolation level repeatable read read only;

-- name: backends
select pid from pg_stat_activity where application_name like 'jobwell %' and pid <> pg_backend_pid() order by pid;

-- name: terminate
select pg_terminate_backend(:pid::integer);

-- name: left
select (select count(*) from jobwell.jobs), (select count(*) from jobwell.cancels), (select count(*) from jobwell.finished),
       (select count(*) from jobwell.quarantine);

-- name: workers
select count(*) from jobwell.workers where state = 'live' and lease_until > jobwell.now();

-- name: waiting
select id from jobwell.jobs where state = 'retrying' limit 500;

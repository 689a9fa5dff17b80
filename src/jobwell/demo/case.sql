-- The schemas and tables of the case, and what the demo asks of them and, from the outside, of the store.
-- The store's schema is written as `jobwell`, the company's as `hr`; both names are replaced by those of the run.

-- name: hold
-- One demo at a time in these schemas.
select pg_try_advisory_lock(hashtextextended('demo in jobwell', 0));

-- name: strangers
-- Schemas of these names that no demo has made.
select nspname from pg_namespace
 where nspname in ('jobwell', 'hr') and obj_description(oid, 'pg_namespace') is distinct from 'made by the demo, and dropped by the next one';

-- name: drop
drop schema if exists jobwell, hr cascade;

-- name: schemas
create schema jobwell;
comment on schema jobwell is 'made by the demo, and dropped by the next one';
create schema hr;
comment on schema hr is 'made by the demo, and dropped by the next one';

-- name: has_workers
select to_regclass('jobwell.workers') is not null;

-- name: alive
select pid, host from jobwell.workers where state <> 'dead' and lease_until > clock_timestamp();

-- name: tables
create table hr.employees (
  employee_id   integer primary key,
  name          text not null,
  email         text not null,
  department    text not null,
  position      text not null,
  manager_id    integer references hr.employees,
  phone         text not null,
  event_version date                                     -- of the last transfer that was applied
);
create table hr.transfers (
  event_version  date not null,
  employee_id    integer not null references hr.employees,
  new_department text not null,
  new_position   text not null,
  new_manager_id integer references hr.employees,
  primary key (event_version, employee_id)
);
create table hr.events (
  event_version date primary key,
  people        integer not null
);
create table hr.department_report (
  event_version date not null references hr.events,
  department    text not null,
  people        integer not null,
  primary key (event_version, department)
);
create table hr.urgent_notices (
  number   integer primary key,
  asked_at timestamptz not null,
  begun_at timestamptz
);

-- name: incoming
create temporary table incoming (
  employee_id integer, name text, email text, department text, position text, manager_id integer, phone text,
  new_department text, new_position text, new_manager_id integer, event_version date) on commit drop;

-- name: load
copy incoming from stdin (format csv, header);

-- name: spread
with person as (
  insert into hr.employees (employee_id, name, email, department, position, manager_id, phone)
  select employee_id, name, email, department, position, manager_id, phone from incoming),
transfer as (
  insert into hr.transfers (event_version, employee_id, new_department, new_position, new_manager_id)
  select event_version, employee_id, new_department, new_position, new_manager_id from incoming)
insert into hr.events (event_version, people) select event_version, count(*) from incoming group by event_version;

-- name: apply
-- Only who has not been moved yet: applied once more, a chunk changes nothing.
update hr.employees e
   set department = t.new_department, position = t.new_position, manager_id = t.new_manager_id, event_version = t.event_version
  from hr.transfers t
 where t.event_version = :event::date and t.employee_id = e.employee_id and e.employee_id = any (:ids)
   and e.event_version is distinct from t.event_version;

-- name: clear_report
delete from hr.department_report where event_version = :event::date;

-- name: report
insert into hr.department_report (event_version, department, people)
select :event::date, department, count(*) from hr.employees group by department;

-- name: find
select employee_id, name, email, position from hr.employees where employee_id = any (:ids);

-- name: ask
insert into hr.urgent_notices (number, asked_at) select unnest(:numbers::integer[]), :now;

-- name: begin
update hr.urgent_notices set begun_at = least(begun_at, :now) where number = :number;

-- name: moved
select (select count(*)::integer from jobwell.quarantine),
       (select count(*)::integer from jobwell.finished),
       (select count(*)::integer from jobwell.jobs where state = 'ready'),
       (select count(*)::integer from jobwell.jobs where state = 'running'),
       (select count(*)::integer from jobwell.jobs where state in ('scheduled', 'retrying')),
       (select coalesce(sum(attempt), 0)::integer from jobwell.jobs);

-- name: correct
update hr.employees e set email = c.email from unnest(:ids::integer[], :emails::text[]) c(id, email) where e.employee_id = c.id;

-- name: stuck
select state, queue, task, count(*)::integer from jobwell.jobs group by state, queue, task order by state, queue, task;

-- name: workers
select count(*)::integer from jobwell.workers where state = 'live';

-- name: busiest
-- Worker processes with what they hold, the busiest first.
select w.pid, count(j.id)::integer from jobwell.workers w left join jobwell.jobs j on j.state = 'running' and j.worker = w.id
 where w.state = 'live' group by w.pid order by 2 desc;

-- name: employees
select employee_id, department, position, manager_id, event_version::text from hr.employees;

-- name: departments
select department, people from hr.department_report where event_version = :event::date;

-- name: quarantine
select task, coalesce(code, reason) from jobwell.quarantine;

-- name: reports
select count(*)::integer from jobwell.finished where task = :task and state = 'succeeded';

-- name: waits
select extract(epoch from begun_at - asked_at)::float8 from hr.urgent_notices;

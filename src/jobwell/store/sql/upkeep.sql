-- name: partitions
-- The days ahead, so that no row ever needs the default partition.
select jobwell.make_partitions('finished', 'finished_at', :ahead::integer) + jobwell.make_partitions('attempts', 'ended_at', :ahead::integer);

-- name: drop_old
select jobwell.drop_partitions(:table, jobwell.now() - make_interval(secs => :seconds));

-- name: delete_old_finished
-- What fell into the default partition goes row by row, in small commits.
with gone as (
  delete from jobwell.finished_default where ctid = any (array(
    select ctid from jobwell.finished_default where finished_at < (select jobwell.now()) - make_interval(secs => :seconds) limit :limit))
  returning 1)
select count(*)::integer from gone;

-- name: delete_old_attempts
with gone as (
  delete from jobwell.attempts_default where ctid = any (array(
    select ctid from jobwell.attempts_default where ended_at < (select jobwell.now()) - make_interval(secs => :seconds) limit :limit))
  returning 1)
select count(*)::integer from gone;

-- name: old_failed
-- Not of a group of which somebody has said that it is looked at, or waits for something.
select q.id from jobwell.quarantine q
 where q.failed_at < (select jobwell.now()) - make_interval(secs => :seconds)
   and not exists (select from jobwell.quarantine_groups g where g.fingerprint = q.fingerprint and g.state in ('looked at', 'waiting'))
 order by q.failed_at limit :limit for update of q skip locked;

-- name: delete_old_edits
-- Arguments as they were before somebody edited them, of jobs that are nowhere any more; and turns of jobs that cannot be retried any more.
with turns as (
  delete from jobwell.quarantine_turns where job_id = any (array(
    select u.job_id from jobwell.quarantine_turns u
     where u.due < (select jobwell.now()) - make_interval(secs => :seconds) and not exists (select from jobwell.jobs j where j.id = u.job_id)
       and not exists (select from jobwell.quarantine q where q.id = u.job_id)
     limit :limit)))
delete from jobwell.quarantine_edits where id = any (array(
  select e.id from jobwell.quarantine_edits e
   where e.at < (select jobwell.now()) - make_interval(secs => :seconds) and not exists (select from jobwell.jobs j where j.id = e.job_id)
     and not exists (select from jobwell.quarantine q where q.id = e.job_id) and not exists (select from jobwell.finished f where f.id = e.job_id)
   limit :limit))
returning id;

-- name: delete_payloads
-- Payloads of jobs that are nowhere any more. Ids begin with their time, so the old ones stand first; the walk goes on behind :after.
with limits as materialized (
  select (lpad(to_hex(((extract(epoch from jobwell.now()) - :seconds) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid as before),
old as materialized (
  select p.id from jobwell.payloads p where p.id > :after and p.id < (select before from limits) order by p.id limit :limit),
gone as (
  delete from jobwell.payloads p using old o
   where p.id = o.id and not exists (select from jobwell.jobs j where j.id = o.id)
     and not exists (select from jobwell.quarantine q where q.id = o.id)
     and not exists (select from jobwell.finished f where f.id = o.id)
  returning p.id)
select (select count(*) from old)::integer, (select count(*) from gone)::integer, (select o.id from old o order by o.id desc limit 1);

-- name: lease
-- Take or renew the right to prune. No row: somebody else has it.
insert into jobwell.upkeep as u (name, holder, who, until) values ('prune', :holder, :who, jobwell.now() + make_interval(secs => :lease))
on conflict (name) do update set holder = excluded.holder, who = excluded.who, until = excluded.until,
  taken_at = case when u.holder = excluded.holder then u.taken_at else excluded.taken_at end
  where u.holder = excluded.holder or u.until < jobwell.now()
returning 1;

-- name: give_back
-- Waits for nobody: a lease that is not given back ends by itself.
delete from jobwell.upkeep where name = any (array(
  select name from jobwell.upkeep where name = 'prune' and holder = :holder for update skip locked));

-- name: holder
select who, taken_at, until, jobwell.now() from jobwell.upkeep where name = 'prune' and until > jobwell.now();

-- name: patience
-- For this transaction only, so that it holds through a pooler and leaves nothing behind in it.
-- A worker claims over the same connection. One that stops in the middle (a frozen host) is ended by the server, locks and all.
select set_config('statement_timeout', '5s', true), set_config('lock_timeout', '100ms', true),
       set_config('idle_in_transaction_session_timeout', '10s', true);

-- name: old_days
-- Whole days that ended so long ago, oldest first.
select p.relname, c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
 where i.inhparent in ('jobwell.finished'::regclass, 'jobwell.attempts'::regclass) and c.relname ~ '_[0-9]{8}$'
   and (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp at time zone 'utc' <= jobwell.now() - make_interval(secs => :seconds)
 order by right(c.relname, 8), p.relname;

-- name: drop_day
-- With the lease in the same commit, and all in one statement: a client that stalls holds no lock on the table.
with mine as (
  insert into jobwell.upkeep as u (name, holder, who, until) values ('prune', :holder, :who, jobwell.now() + make_interval(secs => :lease))
  on conflict (name) do update set holder = excluded.holder, who = excluded.who, until = excluded.until
    where u.holder = excluded.holder or u.until < jobwell.now()
  returning 1)
select jobwell.drop_day(:table, :day) from mine;

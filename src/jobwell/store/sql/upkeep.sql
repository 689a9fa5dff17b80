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

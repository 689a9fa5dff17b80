-- name: tell
-- How far these attempts are; of those that no longer have their job nothing is written. No lock: it is for people's eyes only.
with given as materialized (
  select * from json_to_recordset(:given::json) as g(id uuid, claim_id uuid, done bigint, total bigint, note text))
insert into jobwell.progress as p (job_id, claim_id, attempt, done, total, note, at)
select j.id, j.claim_id, j.attempt, g.done, g.total, g.note, jobwell.now()
  from given g join jobwell.jobs j on j.id = g.id and j.claim_id = g.claim_id
 where j.id = any (array(select g.id from given g)) order by j.id
on conflict (job_id) do update
   set claim_id = excluded.claim_id, attempt = excluded.attempt, done = excluded.done, total = excluded.total, note = excluded.note,
       at = excluded.at;

-- name: tell_last
-- The last word of one that ends with the transaction of its task. Not in one with an old snapshot, which a word written meanwhile
-- would break: the work counts for more.
insert into jobwell.progress as p (job_id, claim_id, attempt, done, total, note, at)
select j.id, j.claim_id, j.attempt, :done::bigint, :total::bigint, :note::text, jobwell.now() from jobwell.jobs j
 where j.id = :job and j.claim_id = :claim and current_setting('transaction_isolation') = 'read committed'
on conflict (job_id) do update
   set claim_id = excluded.claim_id, attempt = excluded.attempt, done = excluded.done, total = excluded.total, note = excluded.note,
       at = excluded.at;

-- name: of_jobs
select p.job_id, p.done, p.total, p.note, p.at from jobwell.progress p where p.job_id = any (:ids::uuid[]);

-- name: delete_old
-- Of jobs that are neither live nor in the quarantine, an hour after the last word. The walk goes on behind :after.
with old as materialized (
  select p.job_id, p.at from jobwell.progress p where p.job_id > :after order by p.job_id limit :limit),
gone as (
  delete from jobwell.progress p using old o
   where p.job_id = o.job_id and o.at < (select jobwell.now()) - interval '1 hour'
     and not exists (select from jobwell.jobs j where j.id = o.job_id) and not exists (select from jobwell.quarantine q where q.id = o.job_id)
  returning 1)
select (select count(*) from old)::integer, (select count(*) from gone)::integer, (select o.job_id from old o order by o.job_id desc limit 1);

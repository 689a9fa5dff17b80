-- name: finish
-- The end of a job as the last statement of the transaction that did its work. Null: it is done; else the job is not the caller's any
-- more, and nothing was written. From here on the job's row is locked: a worker that stalls before its COMMIT is cut off by the server.
select (select f from jobwell.finish(array[:job::uuid], array[:claim::uuid], array[:result::text], array[:note::text]) f),
       set_config('idle_in_transaction_session_timeout', '10s', true);

-- name: finish_expiring
-- The same with a result that is kept for a time of its own.
select (select f from jobwell.finish_expiring(array[:job::uuid], array[:claim::uuid], array[:result::text], array[:note::text],
                                              array[:seconds::float8]) f),
       set_config('idle_in_transaction_session_timeout', '10s', true);

-- name: fate
-- Whether a COMMIT whose answer was lost has taken effect. A row of ours that can be locked: that transaction is over, and it has not.
-- A row of ours that cannot: it is still open. Of somebody else, or none and no finished one of our attempt: the job was lost before.
with free as (
  select j.id from jobwell.jobs j where j.id = :job::uuid and j.claim_id = :claim::uuid for update skip locked)
select case
  when exists (select from free) then 'undone'
  when exists (select from jobwell.jobs j where j.id = :job::uuid and j.claim_id = :claim::uuid) then 'open'
  when exists (select from jobwell.finished f where f.id = :job::uuid and f.attempt = :attempt and f.state = 'succeeded') then 'done'
  else 'lost' end;

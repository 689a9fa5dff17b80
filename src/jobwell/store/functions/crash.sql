-- version: 4
-- Crashes: a process that died in the middle of a job, seen by who started it. Counted apart from failures and losses.

-- Count a crash for jobs that the caller has locked. At p_bound crashes a job goes to the quarantine; before, it waits for the
-- next attempt, a little longer each time. With p_apart it runs alone from now on, behind a gate of its own (core/ids.py).
create or replace function jobwell.count_crashes(p_ids uuid[], p_hows text[], p_bound integer, p_apart boolean) returns void
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
begin
  insert into jobwell.attempts (job_id, started_at, claim_id, worker, attempt, outcome, next_at, note)
  select j.id, j.started_at, j.claim_id, j.worker, j.attempt, 'crashed',
         case when j.crashes + 1 < jobwell.bound_of(j.task, p_bound) then (select jobwell.now()) + make_interval(secs => 2 ^ j.crashes) end, g.how
    from unnest(p_ids, p_hows) g(id, how) join jobwell.jobs j on j.id = g.id;
  update jobwell.jobs j
     set state = 'retrying', ready_at = null, run_at = (select jobwell.now()) + make_interval(secs => 2 ^ j.crashes), crashes = j.crashes + 1,
         gate = case when p_apart and not j.alone then j.gate # 418431069797 else j.gate end, alone = j.alone or p_apart,
         claim_id = null, worker = null, started_at = null
   where j.id = any (p_ids) and j.crashes + 1 < jobwell.bound_of(j.task, p_bound);
  with gone as (
    delete from jobwell.jobs j where j.id = any (p_ids) and j.state = 'running' returning j.*)
  insert into jobwell.quarantine (dedup_key, dedup, dedup_window, alone, id, enqueued_at, run_at, deadline, started_at, worker, gate, rank, attempt, failures, crashes,
    losses, postponements, bytes, queue, task, tenant, lock_key, reason, message, fingerprint, args, meta)
  select o.dedup_key, o.dedup, o.dedup_window, o.alone or p_apart, o.id, o.enqueued_at, o.run_at, o.deadline, o.started_at, o.worker,
    case when p_apart and not o.alone then o.gate # 418431069797 else o.gate end, o.rank, o.attempt, o.failures, o.crashes + 1,
    o.losses, o.postponements, o.bytes, o.queue, o.task, o.tenant, o.lock_key, 'crashed',
    'it killed its process ' || (o.crashes + 1) || ' times; the last time: ' || g.how, o.task || '|crashed', o.args, o.meta
    from gone o join unnest(p_ids, p_hows) g(id, how) on g.id = o.id
  on conflict (id) do nothing;
end $$;

-- Attempts whose children died. Fenced; returns the ids that were no longer the caller's.
create or replace function jobwell.crash(p_ids uuid[], p_claims uuid[], p_hows text[], p_bound integer) returns setof uuid
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  mine uuid[];
begin
  perform from jobwell.jobs j where j.id = any (p_ids) order by j.id for update;
  mine := array(select j.id from unnest(p_ids, p_claims) g(id, claim_id) join jobwell.jobs j on j.id = g.id and j.claim_id = g.claim_id);
  perform jobwell.count_crashes(
    array(select g.id from unnest(p_ids, p_hows) g(id, how) where g.id = any (mine)),
    array(select g.how from unnest(p_ids, p_hows) g(id, how) where g.id = any (mine)), p_bound, false);
  return query select g.id from unnest(p_ids) g(id) where g.id <> all (mine);
end $$;

-- The process of a worker died, seen by its living supervisor: what it ran itself is suspect, and runs alone from now on, so
-- that the guilty one is found and its neighbours are not punished with it. What ran in children of its own is not: the rescue
-- takes it back. Returns how many suspects there are.
create or replace function jobwell.suspect(p_worker uuid, p_how text, p_bound integer) returns integer
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  apart boolean;
  suspects uuid[];
begin
  -- A worker that ended by itself has said so in its row, or taken it along: then nothing crashed.
  select w.children > 0 into apart from jobwell.workers w where w.id = p_worker and w.state <> 'dead' for update;
  if apart is null then
    return 0;
  end if;
  suspects := array(
    select j.id from jobwell.jobs j
     where j.state = 'running' and j.worker = p_worker
       and (not apart or not j.alone and not exists (
         select from jobwell.catalog c where c.task = j.task and c.spec ->> 'executor' = 'process'))
     order by j.id for update);
  perform jobwell.count_crashes(suspects, array(select p_how from unnest(suspects)), p_bound, true);
  update jobwell.workers w set state = 'dead', idle = false where w.id = p_worker;
  return cardinality(suspects);
end $$;

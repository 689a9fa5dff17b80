-- version: 1
-- Move succeeded jobs out of the live table. Each is fenced by (id, claim_id).
-- Returns the ids that were no longer the caller's: ownership lost, nothing changed for them.
--
-- By primary key whatever the statistics say: `id = any(…)` is an index condition under every plan, and `is true`
-- keeps the exact check of the pair a hashed look-up; a join here turned quadratic on a table that looked small.
create or replace function jobwell.finish(p_ids uuid[], p_claims uuid[], p_results text[], p_notes text[])
returns setof uuid
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off
as $$
  with given as materialized (
    select * from unnest(p_ids, p_claims, p_results, p_notes) as g(id, claim_id, result, note)),
  ended as (
    delete from jobwell.jobs j
     where j.id = any (p_ids) and ((j.id, j.claim_id) in (select g.id, g.claim_id from given g)) is true
    returning j.*),
  logged as (
    insert into jobwell.attempts (job_id, started_at, claim_id, worker, attempt, outcome)
    select e.id, e.started_at, e.claim_id, e.worker, e.attempt, 'succeeded' from ended e where e.attempt > 1),
  kept as (
    insert into jobwell.finished (id, finished_at, enqueued_at, run_at, started_at, worker, rank, attempt, failures, bytes,
                                  queue, task, state, tenant, args, meta, result, note)
    select e.id, (select jobwell.now()), e.enqueued_at, e.run_at, e.started_at, e.worker, e.rank, e.attempt, e.failures, e.bytes,
           e.queue, e.task, 'succeeded', e.tenant, e.args, e.meta, g.result::json, g.note
      from ended e join given g on g.id = e.id and g.claim_id = e.claim_id)
  select g.id from given g where (g.id, g.claim_id) not in (select e.id, e.claim_id from ended e)
$$;

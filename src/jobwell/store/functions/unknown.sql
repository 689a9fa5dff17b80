-- version: 3
-- Jobs that no live worker can run: their task is unknown to all of them.

-- The gates of ready jobs whose task no live worker knows, with how many there are (capped) and since when the oldest is ready.
-- Nothing is said while a worker of an older release lives, which does not say what it knows.
create or replace function jobwell.unknown(p_cap integer) returns table (queue text, rank smallint, gate bigint, task text, jobs bigint, since timestamptz)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
begin
  if not exists (select from jobwell.workers w where w.state <> 'dead')
     or exists (select from jobwell.workers w where w.state <> 'dead' and cardinality(w.tasks) = 0) then
    return;
  end if;
  return query
  with recursive hop as (
    (select j.queue, j.rank, j.gate, j.task from jobwell.jobs j where j.state = 'ready' order by j.queue, j.rank, j.gate limit 1)
    union all
    select n.queue, n.rank, n.gate, n.task from hop h cross join lateral (
      select j.queue, j.rank, j.gate, j.task from jobwell.jobs j
       where j.state = 'ready' and (j.queue, j.rank, j.gate) > (h.queue, h.rank, h.gate)
       order by j.queue, j.rank, j.gate limit 1) n)
  select f.queue, f.rank, f.gate, f.task, c.jobs, c.since from (select * from hop limit 5000) f
   cross join lateral (
     select count(*) as jobs, min(o.ready_at) as since from (
       select j.ready_at from jobwell.jobs j
        where j.state = 'ready' and j.queue = f.queue and j.rank = f.rank and j.gate = f.gate limit p_cap) o) c
   where not exists (select from jobwell.workers w where w.state <> 'dead' and f.task = any (w.tasks));
end $$;

-- To the quarantine with those that have waited for so long: a person decides. Returns how many; call again while it is p_limit.
create or replace function jobwell.give_up_unknown(p_queue text, p_rank smallint, p_gate bigint, p_seconds double precision, p_limit integer)
returns integer
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  with old as (
    select j.id from jobwell.jobs j
     where j.state = 'ready' and j.queue = p_queue and j.rank = p_rank and j.gate = p_gate
       and j.ready_at < (select jobwell.now()) - make_interval(secs => p_seconds)
     limit p_limit for update skip locked),
  gone as (
    delete from jobwell.jobs j where j.id = any (array(select id from old)) returning j.*),
  kept as (
    insert into jobwell.quarantine (dedup_key, dedup, dedup_window, alone, id, enqueued_at, run_at, deadline, started_at, worker, gate, rank, attempt, failures, crashes,
      losses, postponements, bytes, queue, task, tenant, lock_key, reason, message, fingerprint, args, meta)
    select g.dedup_key, g.dedup, g.dedup_window, g.alone, g.id, g.enqueued_at, g.run_at, g.deadline, g.started_at, g.worker, g.gate, g.rank, g.attempt, g.failures, g.crashes,
      g.losses, g.postponements, g.bytes, g.queue, g.task, g.tenant, g.lock_key, 'unsupported',
      'no live worker has known the task ' || g.task || ' since it was ready at ' || to_char(g.ready_at at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS') || 'Z',
      g.task || '|unsupported', g.args, g.meta
      from gone g
    on conflict (id) do nothing
    returning 1)
  select count(*)::integer from gone
$$;

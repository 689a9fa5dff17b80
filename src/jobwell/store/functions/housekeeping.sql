-- version: 4
-- What any live worker does between jobs, in small commits, blind to task types.

-- Flip due jobs to ready, oldest first. Returns how many, and the seconds until the next one is due (null: none waits).
create or replace function jobwell.flip_due(p_limit integer, out flipped integer, out next_in double precision)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
begin
  update jobwell.jobs j set state = 'ready', ready_at = (select jobwell.now())
   where j.id = any (array(
     select d.id from jobwell.jobs d where d.state in ('scheduled', 'retrying') and d.run_at <= (select jobwell.now())
      order by d.run_at limit p_limit for update skip locked));
  get diagnostics flipped = row_count;
  next_in := extract(epoch from (
    select d.run_at from jobwell.jobs d where d.state in ('scheduled', 'retrying') order by d.run_at limit 1) - jobwell.now());
end $$;

-- Mark workers dead whose lease has ended. Judged and locked here, so a renewal either comes before or finds itself dead.
-- Only by a worker whose own last renewal is young: after a freeze or a step of the clock all leases look old at once.
create or replace function jobwell.bury(p_worker uuid default null) returns setof uuid
language sql volatile as $$
  update jobwell.workers w set state = 'dead', idle = false
   where w.id = any (array(
     select d.id from jobwell.workers d where d.state <> 'dead' and d.lease_until < (select jobwell.now()) for update skip locked))
     and w.lease_until < (select jobwell.now())
     and (p_worker is null or exists (
       select from jobwell.workers me where me.id = p_worker and me.lease_until - (select jobwell.now()) > (me.lease_until - me.beat_at) / 2))
  returning w.id
$$;

-- How often a job may lose its process: the general bound, or once where its task says that a person decides.
create or replace function jobwell.bound_of(p_task text, p_bound integer) returns integer
language sql stable as $$
  select case when exists (select from jobwell.catalog c where c.task = p_task and c.spec ->> 'on_lost' = 'fail') then 1 else p_bound end
$$;

-- Running jobs whose worker is dead or has no row: back to ready, the loss counted, the first time at once and then behind
-- a growing delay; after p_bound losses to the quarantine. Returns how many were taken; call again while it is p_limit.
create or replace function jobwell.rescue(p_limit integer, p_bound integer) returns integer
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  orphans uuid[];
begin
  orphans := array(
    with recursive owner as (
      (select j.worker from jobwell.jobs j where j.state = 'running' order by j.worker limit 1)
      union all
      select n.worker from owner o cross join lateral (
        select j.worker from jobwell.jobs j where j.state = 'running' and j.worker > o.worker order by j.worker limit 1) n),
    gone as materialized (
      select o.worker from owner o
       where not exists (select from jobwell.workers w where w.id = o.worker and w.state <> 'dead'))
    select x.id from gone g cross join lateral (
      select j.id from jobwell.jobs j where j.state = 'running' and j.worker = g.worker limit p_limit for update skip locked) x
    limit p_limit);
  if cardinality(orphans) = 0 then
    return 0;
  end if;
  with taken as (
    select j.* from jobwell.jobs j where j.id = any (orphans) and j.losses < jobwell.bound_of(j.task, p_bound) - 1),
  back as (
    update jobwell.jobs j
       set state = case when t.losses = 0 then 'ready' else 'retrying' end,
           ready_at = case when t.losses = 0 then (select jobwell.now()) end,
           run_at = (select jobwell.now()) + make_interval(secs => case when t.losses = 0 then 0 else least(600, 5 * 2 ^ t.losses) end),
           losses = j.losses + 1, claim_id = null, worker = null, started_at = null
      from taken t where j.id = t.id
    returning j.id, j.run_at)
  insert into jobwell.attempts (job_id, started_at, claim_id, worker, attempt, outcome, next_at, note)
  select t.id, t.started_at, t.claim_id, t.worker, t.attempt, 'lost', b.run_at, 'its worker vanished'
    from taken t join back b on b.id = t.id;
  with gone as (
    delete from jobwell.jobs j where j.id = any (orphans) and j.state = 'running' returning j.*),
  logged as (
    insert into jobwell.attempts (job_id, started_at, claim_id, worker, attempt, outcome, note)
    select g.id, g.started_at, g.claim_id, g.worker, g.attempt, 'lost', 'its worker vanished' from gone g)
  insert into jobwell.quarantine (dedup_key, dedup, dedup_window, alone, id, enqueued_at, run_at, deadline, started_at, worker, gate, rank, attempt, failures, crashes,
    losses, postponements, bytes, queue, task, tenant, lock_key, reason, message, fingerprint, args, meta)
  select g.dedup_key, g.dedup, g.dedup_window, g.alone, g.id, g.enqueued_at, g.run_at, g.deadline, g.started_at, g.worker, g.gate, g.rank, g.attempt, g.failures, g.crashes,
    g.losses + 1, g.postponements, g.bytes, g.queue, g.task, g.tenant, g.lock_key, 'lost',
    'its worker vanished ' || (g.losses + 1) || ' times while it ran', g.task || '|lost', g.args, g.meta
    from gone g
  on conflict (id) do nothing;
  return cardinality(orphans);
end $$;

-- Tell an idle worker that there is work: the only notification there is, without a payload, and only where some worker
-- has said that it waits. In the caller's transaction this is the cheap case: nobody is busy.
create or replace function jobwell.wake(p_queues text[]) returns void
language sql volatile as $$
  select pg_notify('jobwell.wake', '')
   where exists (select from jobwell.workers w where w.idle and w.queues && p_queues)
$$;

-- Make the daily partitions of one table: today and p_ahead days on. Built apart with their bounds checked, then attached,
-- so that the parent is locked for an instant only; a day that already has rows in the default partition is left there.
-- The lock timeout is the function's own, so that one statement does it all: a worker that stalls between two statements of
-- a transaction would keep everyone from the table.
create or replace function jobwell.make_partitions(p_table text, p_column text, p_ahead integer) returns integer
language plpgsql volatile
set lock_timeout = '50ms' set datestyle = 'ISO' set timezone = 'UTC'
as $$
declare
  day date;
  part text;
  taken boolean;
  made integer := 0;
begin
  for day in select d::date from generate_series((select jobwell.now()) at time zone 'utc', ((select jobwell.now()) at time zone 'utc') + make_interval(days => p_ahead), interval '1 day') d loop
    part := p_table || '_' || to_char(day, 'YYYYMMDD');
    continue when to_regclass(format('jobwell.%I', part)) is not null;
    execute format('select exists (select from jobwell.%I where %I >= %L and %I < %L)',
      p_table || '_default', p_column, day::timestamp at time zone 'utc', p_column, (day + 1)::timestamp at time zone 'utc') into taken;
    continue when taken;
    execute format('create table jobwell.%I (like jobwell.%I including defaults including constraints)', part, p_table);
    execute format('alter table jobwell.%I add constraint bounds check (%I >= %L and %I < %L and %I is not null)', part,
      p_column, day::timestamp at time zone 'utc', p_column, (day + 1)::timestamp at time zone 'utc', p_column);
    execute format('alter table jobwell.%I attach partition jobwell.%I for values from (%L) to (%L)', p_table, part,
      day::timestamp at time zone 'utc', (day + 1)::timestamp at time zone 'utc');
    execute format('alter table jobwell.%I drop constraint bounds', part);
    made := made + 1;
  end loop;
  return made;
end $$;

-- Drop the daily partitions of one table that end before p_before.
create or replace function jobwell.drop_partitions(p_table text, p_before timestamptz) returns integer
language plpgsql volatile
set lock_timeout = '50ms' set datestyle = 'ISO' set timezone = 'UTC'
as $$
declare
  part text;
  dropped integer := 0;
begin
  for part in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = format('jobwell.%I', p_table)::regclass and c.relname ~ ('^' || p_table || '_[0-9]{8}$')
       and (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp at time zone 'utc' <= p_before
     order by 1 loop
    execute format('drop table jobwell.%I', part);
    dropped := dropped + 1;
  end loop;
  return dropped;
end $$;

-- version: 1
-- How many ready jobs a queue holds, up to p_cap: as somebody counted within the last second, else counted now. Counting takes
-- at most a twentieth of the time: one that took 100 ms stands for two seconds. One counts at a time, the others take what there is.
-- Returns besides for how long it stands, and how many seconds ago the count began: what was committed later is not in it.
create or replace function jobwell.queue_length(
  p_queue text, p_cap integer, out length integer, out fresh_for double precision, out age double precision)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
as $$
declare
  known record;
  counted timestamptz := jobwell.now();
  began timestamptz := clock_timestamp();
  alone boolean;
begin
  select l.length, l.cap, l.counted_at, l.took into known from jobwell.queue_lengths l where l.queue = p_queue;
  age := extract(epoch from counted - known.counted_at);
  length := least(known.length, p_cap);
  fresh_for := greatest(1, 20 * known.took) - age;
  if known.cap >= p_cap and age >= 0 and fresh_for > 0 then
    return;
  end if;
  alone := pg_try_advisory_xact_lock(hashtextextended('jobwell.length:' || p_queue, 0));
  if not alone and known.cap >= p_cap and age >= 0 then
    fresh_for := 0;
    return;
  end if;
  select count(*) into length
    from (select from jobwell.jobs j where j.state = 'ready' and j.queue = p_queue limit p_cap) ready;
  age := 0;
  fresh_for := greatest(1, 20 * extract(epoch from clock_timestamp() - began));
  if alone then
    insert into jobwell.queue_lengths as l (queue, length, cap, counted_at, took)
    values (p_queue, queue_length.length, p_cap, counted, extract(epoch from clock_timestamp() - began))
    on conflict (queue) do update
       set length = excluded.length, cap = excluded.cap, counted_at = excluded.counted_at, took = excluded.took;
  end if;
end $$;

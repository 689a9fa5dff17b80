-- version: 9
-- Claim up to p_want ready jobs for one worker (docs/claim.md tells the walk in words).
--
-- Rank by rank; within a rank over lanes (queue, gate, tenant), each with an equal share, what some leave
-- unused handed to the others; within a lane over lock keys that nobody holds; oldest first.
-- Lanes are found by loose scans of jobs_ready: a closed gate costs one jump, whatever stands in it. Where a long
-- transaction elsewhere stops vacuum, those scans walk over all that was claimed since; the caller sees it in `reads` and
-- then names the lanes that it knows, each with a time before which it has left nothing (core/marks.py).
-- The planner settings stand here and not in the session, so that they hold through a pooler, and with them the
-- plan is the same for an empty table, a million rows, and no statistics at all.
drop function if exists jobwell.claim(uuid, uuid, text[], bigint[], integer, integer, bigint, text, bigint, json);
create or replace function jobwell.claim(
  p_worker uuid, p_claim uuid, p_queues text[], p_gates bigint[], p_want integer, p_from_rank integer,
  p_after_gate bigint, p_after_tenant text, p_bytes bigint, p_lanes json default null, p_hints boolean default false
) returns table (
  id uuid, task text, queue text, tenant text, gate bigint, rank smallint, attempt smallint, failures smallint,
  postponements integer, bytes integer, remaining double precision, args text, meta text, ready_us bigint, lanes integer, reads bigint
)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set enable_sort = on set enable_material = off set jit = off set plan_cache_mode = force_generic_plan
set standard_conforming_strings = on
as $$
#variable_conflict use_column
declare
  left_over integer := p_want;
  at_rank integer := p_from_rank - 1;
  after_gate bigint;
  after_tenant text;
  width integer;  -- lanes that are looked at together
  lanes_found integer;
  whole boolean;
  spin integer := floor(random() * 1000);
  locks boolean := exists (select from jobwell.jobs where state = 'ready' and lock_key <> '' and queue = any (p_queues));
  left_bytes bigint := p_bytes;
  picked uuid[];
  picked_bytes bigint;
  lane_count integer;
  got integer;
  entries_read bigint;
  held_tenants text[] := '{}';
  read_before bigint := pg_stat_get_xact_tuples_returned('jobwell.jobs_ready'::regclass);
begin
  -- One that was declared dead and does not know it yet: others would take back at once what it takes, and run it beside it.
  if not exists (select from jobwell.workers w where w.id = p_worker and w.state <> 'dead') then
    return;
  end if;
  -- Queues that are held are not looked at. Asked of the table at each claim, so that a pause is effective at once.
  if exists (select from jobwell.queues) then
    p_queues := array(
      select q from unnest(p_queues) q where not exists (
        select from jobwell.queues h where h.name in (q, '*') and (h.paused_until is null or h.paused_until > (select jobwell.now()))));
  end if;
  -- Nor are gates whose task or resource is held.
  if exists (select from jobwell.holds) then
    p_gates := array(
      select g from unnest(p_gates) g where not exists (
        select from jobwell.holds h join jobwell.gates k on k.gate = g and (h.kind = 'task' and h.name = k.task or h.kind = 'resource' and h.name = any (k.resources))
         where h.held_until is null or h.held_until > (select jobwell.now())));
    held_tenants := array(select h.name from jobwell.holds h where h.kind = 'tenant' and (h.held_until is null or h.held_until > (select jobwell.now())));
  end if;
  -- Where something is limited, the walk is another one; where nothing is, this is all that it costs.
  if cardinality(held_tenants) > 0 or exists (select from jobwell.limits) or exists (select from jobwell.gates k where k.busy = 'skip' or k.ordered or k.key_rates is not null) then
    return query select * from jobwell.claim_within(p_worker, p_claim, p_queues, p_gates, p_want, p_from_rank, p_after_gate, p_after_tenant,
                                                    p_bytes, p_lanes, held_tenants, p_hints);
    return;
  end if;
  loop
    if p_lanes is not null then
      select min(k.rank) into at_rank from json_to_recordset(p_lanes) k(rank smallint, queue text) where k.rank > at_rank and k.queue = any (p_queues);
    else
      select min(f.rank) into at_rank
        from unnest(p_queues) q cross join lateral (
          select j.rank from jobwell.jobs j where j.state = 'ready' and j.queue = q and j.rank > at_rank
          order by j.rank limit 1) f;
    end if;
    exit when at_rank is null;
    after_gate := p_after_gate;
    after_tenant := p_after_tenant;
    width := left_over;
    loop
      -- From the middle on each lane gives one, and then all share what is left: nobody has more for standing at the end.
      -- What cannot be shared evenly goes to lanes by lot.
      whole := p_lanes is not null or after_gate = -9223372036854775808 and after_tenant = '';
      with recursive hop as (
        select n.queue, n.gate, n.tenant, n.open, n.open::integer as number, count(*) filter (where n.open) over () as found from (
          select q.queue, f.gate, f.tenant, f.gate = any (p_gates) as open from unnest(p_queues) q(queue) cross join lateral (
            select j.gate, j.tenant from jobwell.jobs j
             where p_lanes is null and j.state = 'ready' and j.queue = q.queue and j.rank = at_rank and (j.gate, j.tenant) > (after_gate, after_tenant)
             order by j.gate, j.tenant limit 1) f) n
        union all
        select n.queue, n.gate, n.tenant, n.open, n.number + n.open::integer, n.found + count(*) filter (where n.open) over () from (
          select h.queue, f.gate, f.tenant, f.gate = any (p_gates) as open, h.number, h.found from hop h cross join lateral (
            select j.gate, j.tenant from jobwell.jobs j
             where j.state = 'ready' and j.queue = h.queue and j.rank = at_rank
               and (j.gate, j.tenant) > (h.gate, case when h.open then h.tenant else U&'\+10FFFF' end)
             order by j.gate, j.tenant limit 1) f
           where h.found <= width) n),
      lane as materialized (
        select n.*, case when not whole or n.total > left_over then 1
                         else left_over / n.total + ((n.number + spin) % n.total < left_over % n.total)::integer end as share from (
        select h.queue, h.gate, h.tenant, h.since, h.after_id, count(*) over () as total, row_number() over () as number from (
          select queue, gate, tenant, '-infinity'::timestamptz as since, '00000000-0000-0000-0000-000000000000'::uuid as after_id from (
            select * from hop where open order by number limit width + 1) found
          union all
          select k.queue, k.gate, k.tenant, least(k.at, k.young),
                 case when k.at <= k.young then k.id else '00000000-0000-0000-0000-000000000000'::uuid end
            from (select r.queue, r.gate, r.tenant, r.id, timestamptz 'epoch' + r.since * interval '1 microsecond' as at,
                         (select jobwell.now()) - r.lag * interval '1 microsecond' as young
                    from json_to_recordset(p_lanes) r(queue text, rank smallint, gate bigint, tenant text, since bigint, id uuid, lag bigint)
                   where r.rank = at_rank and r.queue = any (p_queues)) k) h) n),
      pick as materialized (
        select x.id, x.bytes, l.total from lane l cross join lateral (
          select y.id, y.bytes from (
            select '' as lock_key, l.since, l.after_id
            union all
            -- A job that waits for its key is passed by others of its lane: no mark counts for it.
            select k.lock_key, '-infinity', '00000000-0000-0000-0000-000000000000' from (
              with recursive key_hop as (
                select '' collate "C" as lock_key, false as free, 0 as number where locks
                union all
                select f.lock_key, f.free, h.number + f.free::integer from key_hop h cross join lateral (
                  select n.lock_key, case when exists (select from jobwell.jobs r where r.state = 'running' and r.lock_key <> '' and r.lock_key = n.lock_key)
                                     then false else pg_try_advisory_xact_lock(hashtextextended('jobwell.lock:' || n.lock_key, 0)) end as free
                    from (select j.lock_key from jobwell.jobs j
                           where j.state = 'ready' and j.queue = l.queue and j.rank = at_rank and j.gate = l.gate
                             and j.tenant = l.tenant and j.lock_key > h.lock_key order by j.lock_key limit 1) n offset 0) f
                 where h.number < least(left_over, 500))
              select lock_key from key_hop where free) k) key
          cross join lateral (
            select j.id, j.bytes from jobwell.jobs j
             where j.state = 'ready' and j.queue = l.queue and j.rank = at_rank and j.gate = l.gate and j.tenant = l.tenant
               and j.lock_key = key.lock_key and (j.ready_at, j.id) > (key.since, key.after_id)
             order by j.ready_at, j.id
             limit case when key.lock_key = '' then l.share else 1 end
             for update skip locked) y
          limit l.share) x
        limit left_over)
      select array_agg(f.id), sum(f.bytes), max(f.total),
             case when locks and p_lanes is null then (select count(*) from lane) else 0 end
        into picked, picked_bytes, lane_count, lanes_found from (
        select p.id, p.bytes, p.total, sum(p.bytes) over (rows unbounded preceding) - p.bytes as before from pick p) f
       where f.before < left_bytes;
      if locks then
        -- A key may have begun to run after the snapshot of the pick and before its lock was ours; a new statement sees it.
        -- One key may also stand in several lanes.
        picked := array(
          select k.id from (
            select j.id, j.lock_key, row_number() over (partition by j.lock_key order by j.ready_at, j.id) as of_key
              from jobwell.jobs j where j.id = any (picked)) k
           where k.lock_key = '' or k.of_key = 1 and not exists (
             select from jobwell.jobs r where r.state = 'running' and r.lock_key <> '' and r.lock_key = k.lock_key));
      end if;
      -- One that shall stop, and came back before its worker knew: it is cancelled where it waits, and does not begin again.
      if exists (select from jobwell.cancels) then
        picked := array(select k from unnest(picked) k where not exists (select from jobwell.cancels c where c.job_id = k));
      end if;
      entries_read := pg_stat_get_xact_tuples_returned('jobwell.jobs_ready'::regclass) - read_before;
      return query
      update jobwell.jobs j
         set state = 'running', attempt = j.attempt + 1, claim_id = p_claim, worker = p_worker, started_at = (select jobwell.now()),
             dedup = case when j.dedup = 'started' then 'begun' else j.dedup end  -- for good: no retry takes the key again
       where j.id = any (picked)
      returning j.id, j.task, j.queue, j.tenant, j.gate, j.rank, j.attempt, j.failures, j.postponements, j.bytes,
                extract(epoch from j.deadline - j.started_at)::float8, j.args::text, j.meta::text,
                (extract(epoch from j.ready_at) * 1000000)::bigint, case when j.id = picked[cardinality(picked)] then lane_count else 0 end,
                entries_read;
      get diagnostics got = row_count;
      left_over := left_over - got;
      left_bytes := left_bytes - coalesce(picked_bytes, 0);
      exit when left_over <= 0 or left_bytes <= 0;
      if got = 0 and lanes_found > width then
        width := width * 4;  -- whose keys are held has nothing to give, and there are lanes behind those
        continue;
      end if;
      -- Started behind the last claim's end and came to the far end: once more from the beginning.
      if after_gate > -9223372036854775808 and p_lanes is null then
        after_gate := -9223372036854775808;
        after_tenant := '';
      else
        exit when got = 0;
      end if;
      width := left_over;
    end loop;
    exit when left_over <= 0 or left_bytes <= 0;
  end loop;
end $$;

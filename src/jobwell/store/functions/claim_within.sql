-- version: 8
-- The claim where something is limited, weighted, held for a tenant, or where locks say more than "wait". The same walk as in
-- claim.sql, from which alone it is called (its planner settings hold here too), with these differences:
--
-- * lanes are taken in the order of the walk until their weights fill the claim;
-- * lanes with the same subjects of limits form a group, and a group gets no more than what each of its subjects has room for,
--   which is looked up in a statement of its own after the subject's lock is ours. A subject that another claim is just
--   working on is passed over, never waited for: no claim waits for another, and none can be caught in a circle;
-- * what has no room closes its gate, queue, tenant or lane for the rest of this claim, and the walk is repeated without it.
--
-- With p_hints a row without an id may come last: `remaining` are the seconds after which it is worth while to ask again.
create or replace function jobwell.claim_within(
  p_worker uuid, p_claim uuid, p_queues text[], p_gates bigint[], p_want integer, p_from_rank integer,
  p_after_gate bigint, p_after_tenant text, p_bytes bigint, p_lanes json, p_held_tenants text[], p_hints boolean
) returns table (
  id uuid, task text, queue text, tenant text, gate bigint, rank smallint, attempt smallint, failures smallint,
  postponements integer, bytes integer, remaining double precision, args text, meta text, ready_us bigint, lanes integer, reads bigint
)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  left_over integer := p_want;
  left_bytes bigint := p_bytes;
  at_rank integer := p_from_rank - 1;
  after_gate bigint;
  after_tenant text;
  width integer;  -- lanes that are looked at together
  wide boolean;
  locks boolean := exists (select from jobwell.jobs where state = 'ready' and lock_key <> '' and queue = any (p_queues));
  read_before bigint := pg_stat_get_xact_tuples_returned('jobwell.jobs_ready'::regclass);
  my_host text := (select w.host from jobwell.workers w where w.id = p_worker);
  -- What limits which gate, and which queue; and whether tenants are limited or weighted at all.
  rules jsonb := (
    select coalesce(jsonb_agg(jsonb_build_object('gate', k.gate, 'kind', f.kind, 'name', f.name, 'per', f.per, 'c', f.concurrency, 'r', f.rates)), '[]')
      from jobwell.limits_in_force f
      left join jobwell.gates k on k.gate = any (p_gates) and case f.kind when 'task' then f.name = k.task when 'resource' then f.name = any (k.resources) else false end
     where f.kind <> 'tenant' and (f.concurrency is not null or f.rates is not null) and (k.gate is not null or f.kind = 'queue' and f.name = any (p_queues)));
  tenants boolean := exists (select from jobwell.limits l where l.kind = 'tenant');
  each_tenant jsonb := (select to_jsonb(f) from jobwell.limits_in_force f where f.kind = 'tenant' and f.name = '*' and f.per = 'fleet');
  lightest double precision := coalesce((select min(f.weight) from jobwell.limits_in_force f where f.kind = 'tenant'), 1);
  parts boolean := tenants or rules @? '$[*] ? (@.per == "tenant")';
  -- What is closed for the rest of this claim.
  open_queues text[] := p_queues;
  open_gates bigint[] := p_gates;
  closed_tenants text[] := p_held_tenants;
  closed_lanes text[] := '{}';
  closing boolean;
  -- The subjects that are ours, and what is left of each.
  s_name text[] := '{}';
  s_turn bigint[] := '{}';
  s_room integer[] := '{}';
  s_rule jsonb[] := '{}';
  s_look boolean[] := '{}';
  s_got integer[] := '{}';
  s_since timestamptz[] := '{}';
  fresh jsonb;
  mine text[];
  u record;
  used integer;
  -- The lanes of this round.
  l_queue text[]; l_gate bigint[]; l_tenant text[]; l_since timestamptz[]; l_after uuid[]; l_weight double precision[]; l_subjects jsonb[];
  lane_count integer;
  lanes_weigh double precision;
  last_part double precision;
  subject_rules jsonb;
  subject_weights jsonb;
  g record;
  numbers integer[];
  share integer;
  v_room integer;
  round_left integer;
  slot integer;
  v_at timestamptz;
  picked uuid[];
  picked_bytes bigint;
  round_got integer;
  got integer;
  entries_read bigint;
  charged_subject integer[] := '{}';
  charged_job uuid[] := '{}';
  keyed text[] := '{}';
  keyed_rates json[] := '{}';
  next_in double precision := 'infinity';
  v_wait double precision;
  contended boolean := false;
  -- Where the walk ended; if a whole gate or queue was closed, where it was then.
  e_queue text; e_gate bigint; e_tenant text; e_lanes integer;
  e_closed boolean := false;
  e_kept boolean := false;
  first_round boolean := true;
  in_turn boolean;
  had_room integer;
  gates_closed boolean;
  any_gate_closed boolean;
begin
  -- Gates whose resource has an open breaker are closed, as held ones are. Whoever has a breaker has a limit, and comes here.
  if exists (select from jobwell.breakers b where b.state = 'open') then
    open_gates := array(
      select g from unnest(p_gates) g where not exists (
        select from jobwell.breakers b join jobwell.gates k on k.gate = g and b.resource = any (k.resources)
         where b.state = 'open' and b.until > (select jobwell.now())));
  end if;
  if lightest > 1 and exists (select from jobwell.limits_in_force f where f.kind = 'tenant' and f.name = '*' and f.weight is not null) = false then
    lightest := 1;
  end if;
  lightest := greatest(lightest, coalesce((each_tenant ->> 'weight')::double precision, 1) / 4);  -- nobody's turn is long for the sake of the lightest
  perform jobwell.skip_busy(p_gates, 100) where locks;
  loop
    if p_lanes is not null then
      select min(k.rank) into at_rank from json_to_recordset(p_lanes) k(rank smallint, queue text) where k.rank > at_rank and k.queue = any (open_queues);
    else
      select min(f.rank) into at_rank
        from unnest(open_queues) q cross join lateral (
          select j.rank from jobwell.jobs j where j.state = 'ready' and j.queue = q and j.rank > at_rank
          order by j.rank limit 1) f;
    end if;
    exit when at_rank is null;
    after_gate := p_after_gate;
    after_tenant := p_after_tenant;
    width := left_over;
    loop
      closing := false;
      any_gate_closed := false;
      wide := p_lanes is not null or width > left_over;  -- named ones, or behind many that had nothing: all of them
      round_got := 0;
      round_left := left_over;
      with recursive hop as (
        select n.queue, n.gate, n.tenant, n.gate_open, n.open, n.open::integer as number, count(*) filter (where n.open) over () as found from (
          select q.queue, f.gate, f.tenant, f.gate = any (open_gates) as gate_open,
                 f.gate = any (open_gates) and f.tenant <> all (closed_tenants) and q.queue || '|' || f.gate || '|' || f.tenant <> all (closed_lanes) as open
            from unnest(open_queues) q(queue) cross join lateral (
            select j.gate, j.tenant from jobwell.jobs j
             where p_lanes is null and j.state = 'ready' and j.queue = q.queue and j.rank = at_rank and (j.gate, j.tenant) > (after_gate, after_tenant)
             order by j.gate, j.tenant limit 1) f) n
        union all
        select n.queue, n.gate, n.tenant, n.gate_open, n.open, n.number + n.open::integer, n.found + count(*) filter (where n.open) over () from (
          select h.queue, f.gate, f.tenant, f.gate = any (open_gates) as gate_open,
                 f.gate = any (open_gates) and f.tenant <> all (closed_tenants) and h.queue || '|' || f.gate || '|' || f.tenant <> all (closed_lanes) as open,
                 h.number, h.found from hop h cross join lateral (
            select j.gate, j.tenant from jobwell.jobs j
             where j.state = 'ready' and j.queue = h.queue and j.rank = at_rank
               and (j.gate, j.tenant) > (h.gate, case when h.gate_open then h.tenant else U&'\+10FFFF' end)
             order by j.gate, j.tenant limit 1) f
           where h.found <= width) n),
      lane as materialized (
        select row_number() over () as number, x.* from (
          select queue, gate, tenant, '-infinity'::timestamptz as since, '00000000-0000-0000-0000-000000000000'::uuid as after_id from (
            select * from hop where open order by number limit case when parts and not wide then least(width + 1, 100) else width + 1 end) found
          union all
          select k.queue, k.gate, k.tenant, least(k.at, k.young),
                 case when k.at <= k.young then k.id else '00000000-0000-0000-0000-000000000000'::uuid end
            from (select r.queue, r.gate, r.tenant, r.id, timestamptz 'epoch' + r.since * interval '1 microsecond' as at,
                         (select jobwell.now()) - r.lag * interval '1 microsecond' as young
                    from json_to_recordset(p_lanes) r(queue text, rank smallint, gate bigint, tenant text, since bigint, id uuid, lag bigint)
                   where r.rank = at_rank and r.queue = any (open_queues) and r.gate = any (open_gates)
                     and r.tenant <> all (closed_tenants) and r.queue || '|' || r.gate || '|' || r.tenant <> all (closed_lanes)) k) x),
      weighed as materialized (
        select l.*, floor(random() + coalesce((select f.weight from jobwell.limits_in_force f where tenants and f.kind = 'tenant' and f.name = l.tenant and f.per = 'fleet'),
                             (each_tenant ->> 'weight')::double precision, 1) / lightest) as weight
          from lane l),
      chosen as materialized (
        -- A light one is passed over by chance, unless there are only such.
        select w.number, w.queue, w.gate, w.tenant, w.since, w.after_id, greatest(w.weight, 1) as weight,
               sum(greatest(w.weight, 1)) over (order by w.number) - greatest(w.weight, 1) as before, count(*) over () as total
          from (select x.*, max(x.weight) over () as heaviest from weighed x) w where w.weight > 0 or w.heaviest = 0),
      part as materialized (
        select c.number, c.queue, c.gate, c.tenant, c.since, c.after_id, c.total, least(c.weight, left_over - c.place) as weight,
               least(c.weight, left_over - c.place) / c.weight as part
          from (select c.*, case when wide then least(c.before, left_over - 1) else c.before end as place from chosen c) c
         where c.before < left_over or wide),
      limited as materialized (
        select p.number, r.kind || ':' || r.name
                 || case r.per when 'host' then '@' || my_host when 'process' then '@' || p_worker when 'tenant' then '|' || p.tenant else '' end as subject,
               jsonb_build_object('kind', r.kind, 'name', r.name, 'per', r.per, 'c', r.c, 'r', r.r) as rule
          from part p join jsonb_to_recordset(rules) r(gate bigint, kind text, name text, per text, c integer, r json)
            on (r.gate = p.gate or r.kind = 'queue' and r.name = p.queue) and (r.per <> 'tenant' or p.tenant <> '')
        union all
        select p.number, 'tenant:' || p.tenant || case f.per when 'host' then '@' || my_host when 'process' then '@' || p_worker else '' end,
               jsonb_build_object('kind', 'tenant', 'name', p.tenant, 'per', f.per, 'c', f.concurrency, 'r', f.rates)
          from part p cross join lateral (
            select f.* from jobwell.limits_in_force f
             where f.kind = 'tenant' and f.name = p.tenant and (f.concurrency is not null or f.rates is not null)) f
         where tenants and p.tenant <> ''
        union all
        select p.number, 'tenant:' || p.tenant, jsonb_build_object('kind', 'tenant', 'name', p.tenant, 'per', 'fleet', 'c', each_tenant -> 'concurrency', 'r', each_tenant -> 'rates')
          from part p
         where p.tenant <> '' and (jsonb_typeof(each_tenant -> 'concurrency') = 'number' or jsonb_typeof(each_tenant -> 'rates') = 'array')
           and not exists (select from jobwell.limits_in_force f where f.kind = 'tenant' and f.name = p.tenant and (f.concurrency is not null or f.rates is not null)))
      select array_agg(p.queue order by p.number), array_agg(p.gate order by p.number), array_agg(p.tenant order by p.number),
             array_agg(p.since order by p.number), array_agg(p.after_id order by p.number), array_agg(p.weight order by p.number),
             array_agg(coalesce(s.subjects, '[]') order by p.number), coalesce(max(p.total), 0), sum(p.weight),
             max(p.part) filter (where p.number = (select max(m.number) from part m)),
             (select jsonb_object_agg(f.subject, f.rule) from limited f)
        into l_queue, l_gate, l_tenant, l_since, l_after, l_weight, l_subjects, lane_count, lanes_weigh, last_part, subject_rules
        from part p left join (select f.number, jsonb_agg(f.subject order by f.subject) as subjects from limited f group by f.number) s on s.number = p.number;

      if not e_closed and not e_kept and cardinality(l_queue) > 0 then
        e_queue := l_queue[cardinality(l_queue)];
        e_gate := l_gate[cardinality(l_queue)];
        e_tenant := l_tenant[cardinality(l_queue)];
        e_lanes := case when random() >= last_part then -lane_count when lane_count > cardinality(l_queue) then lane_count else 1 end;
      end if;

      -- Subjects that were not met before: their locks, and then, in statements that see what their last holders did, their room.
      select jsonb_agg(k) into fresh from jsonb_object_keys(subject_rules) k where k <> all (s_name);
      if fresh is not null then
        mine := array(select k from jsonb_array_elements_text(fresh) k where pg_try_advisory_xact_lock(hashtextextended('jobwell.limit:' || k, 0)));
        contended := contended or cardinality(mine) < jsonb_array_length(fresh);
        v_at := jobwell.now();
        for u in
          select k as subject, subject_rules -> k as rule, x.turn, coalesce(cardinality(x.jobs), 0) as listed, coalesce(x.alive, 0) as alive, x.tats,
                 k = any (mine) as ours
            from jsonb_array_elements_text(fresh) k
            left join lateral (select * from jobwell.limit_uses y where y.subject = k order by y.turn desc limit 1) x on k = any (mine) loop
          v_room := case when u.ours then 2147483647 else 0 end;
          used := u.listed;
          if u.ours and jsonb_typeof(u.rule -> 'c') = 'number' then
            if used + left_over > (u.rule ->> 'c')::integer or used > 2 * u.alive + 500 then
              used := jobwell.in_use(u.subject);
            end if;
            v_room := greatest((u.rule ->> 'c')::integer - used, 0);
          end if;
          if u.ours and jsonb_typeof(u.rule -> 'r') = 'array' then
            select least(v_room, r.room), r.wait into v_room, v_wait from jobwell.rate_room((u.rule -> 'r')::json, u.tats, v_at, p_want) r;
            if v_wait > 0 then
              next_in := least(next_in, v_wait);
            end if;
          end if;
          s_name := s_name || u.subject;
          s_turn := s_turn || coalesce(u.turn, 0);
          s_room := s_room || v_room;
          s_rule := s_rule || u.rule;
          s_look := s_look || (used < u.listed or used > 2 * u.alive + 500);
          s_got := s_got || 0;
          s_since := s_since || v_at;
        end loop;
      end if;

      subject_weights := null;
      if parts then
        select jsonb_object_agg(w.s, w.weight) into subject_weights from (
          select s, sum(x.weight) as weight from unnest(l_subjects, l_weight) x(subjects, weight), jsonb_array_elements_text(x.subjects) s group by s) w;
      end if;
      for g in
        select x.subjects, array_agg(x.number order by x.number) as numbers, sum(x.weight) as weight
          from unnest(l_subjects, l_weight) with ordinality x(subjects, weight, number)
         group by x.subjects
         -- Where tenants are limited each is a group of its own; which of them is first at what they share is drawn by lot.
         order by case when parts then -ln(1 - random()) / sum(x.weight) else min(x.number) end loop
        exit when left_over <= 0 or left_bytes <= 0;
        numbers := g.numbers;
        -- From the middle to the far end: each its weight, and then the walk begins anew. Otherwise all that is wanted is shared.
        share := least(left_over, case when after_gate > -9223372036854775808 and p_lanes is null and lanes_weigh < round_left then g.weight::integer
                                       else greatest(1, ceil(round_left * g.weight / lanes_weigh)::integer) end);
        -- Of what it shares with other groups each has its part first; what they leave is taken in the next round.
        select least(share, min(ceil(s_room[array_position(s_name, s)] * case when parts then g.weight / greatest(g.weight, (subject_weights ->> s)::double precision) else 1 end)))::integer
          into v_room from jsonb_array_elements_text(g.subjects) s;
        v_room := coalesce(v_room, share);
        had_room := v_room;
        if v_room > 0 then
          -- More lanes than room: in their turn where the walk began among them, and it goes on behind the last that had a chance;
          -- otherwise by lot, heavy ones more often, so that those at the beginning are not always the first.
          in_turn := first_round and numbers[1] = 1;
          with placed as (
            select n, case when v_room < g.weight and not in_turn then -ln(1 - random()) / l_weight[n] else n end as place from unnest(numbers) n),
          few as materialized (
            select l_queue[n] as queue, l_gate[n] as gate, l_tenant[n] as tenant, l_since[n] as since, l_after[n] as after_id, p.place,
                   p.upto - l_weight[n] as before, least(p.upto, v_room) as upto, least(g.weight, v_room) as weigh, p.upto - l_weight[n] >= v_room as beyond
              from (select n, place, sum(l_weight[n]) over (order by place) as upto from placed) p
             where p.upto - l_weight[n] < v_room or wide),
          lane as materialized (select f.*, case when f.beyond then 1 else greatest(ceil(v_room * f.upto / f.weigh) - ceil(v_room * f.before / f.weigh), wide::integer) end::integer as most, k.ordered, k.key_rates
                                  from few f left join jobwell.gates k on k.gate = f.gate),
          pick as materialized (
            select x.id, x.bytes from (select * from lane order by place) l cross join lateral (
              select y.id, y.bytes from (
                select '' as lock_key, l.since, l.after_id
                union all
                select k.lock_key, '-infinity', '00000000-0000-0000-0000-000000000000' from (
                  with recursive key_hop as (
                    select '' collate "C" as lock_key, false as free, 0 as number where locks
                    union all
                    select f.lock_key, f.free, h.number + f.free::integer from key_hop h cross join lateral (
                      select n.lock_key,
                             case when exists (select from jobwell.jobs r where r.state = 'running' and r.lock_key <> '' and r.lock_key = n.lock_key) then false
                                  when l.ordered and exists (select from jobwell.jobs r where r.state in ('scheduled', 'retrying') and r.lock_key <> ''
                                                                and r.lock_key = n.lock_key and r.attempt + r.postponements > 0) then false
                                  when l.ordered and not coalesce((
                                    select o.queue = l.queue and o.rank = at_rank and o.gate = l.gate and o.tenant = l.tenant from jobwell.jobs o
                                     where o.state = 'ready' and o.lock_key = n.lock_key and o.lock_key <> '' order by o.id limit 1), false) then false
                                  when not jobwell.key_open(n.lock_key, l.key_rates) then false
                                  else pg_try_advisory_xact_lock(hashtextextended('jobwell.lock:' || n.lock_key, 0)) end as free
                        from (select j.lock_key from jobwell.jobs j
                               where j.state = 'ready' and j.queue = l.queue and j.rank = at_rank and j.gate = l.gate
                                 and j.tenant = l.tenant and j.lock_key > h.lock_key order by j.lock_key limit 1) n offset 0) f
                     where h.number < least(v_room, 500))
                  select lock_key from key_hop where free) k) key
              cross join lateral (
                select j.id, j.bytes from jobwell.jobs j
                 where j.state = 'ready' and j.queue = l.queue and j.rank = at_rank and j.gate = l.gate and j.tenant = l.tenant
                   and j.lock_key = key.lock_key and (j.ready_at, j.id) > (key.since, key.after_id)
                   and (key.lock_key = '' or l.ordered is not true or j.id = (
                     select o.id from jobwell.jobs o where o.state = 'ready' and o.lock_key = key.lock_key and o.lock_key <> '' order by o.id limit 1))
                 order by j.ready_at, j.id
                 limit case when key.lock_key = '' then l.most else 1 end
                 for update skip locked) y
              limit l.most) x
            limit v_room)
          select array_agg(f.id), sum(f.bytes) into picked, picked_bytes from (
            select p.id, p.bytes, sum(p.bytes) over (rows unbounded preceding) - p.bytes as before from pick p) f
           where f.before < left_bytes;
          if locks then
            -- As in claim.sql: what has happened to a key between the snapshot of the pick and its lock is seen by a new statement.
            picked := array(
              select k.id from (
                select j.id, j.lock_key, c.key_rates, row_number() over (partition by j.lock_key order by j.ready_at, j.id) as of_key
                  from jobwell.jobs j left join jobwell.gates c on c.gate = j.gate where j.id = any (picked)) k
               where k.lock_key = '' or k.of_key = 1 and jobwell.key_open(k.lock_key, k.key_rates) and not exists (
                 select from jobwell.jobs r where r.state = 'running' and r.lock_key <> '' and r.lock_key = k.lock_key));
          end if;
          if exists (select from jobwell.cancels) then
            picked := array(select k from unnest(picked) k where not exists (select from jobwell.cancels c where c.job_id = k));
          end if;
          if locks then
            select keyed || coalesce(array_agg(j.lock_key), '{}'), keyed_rates || coalesce(array_agg(c.key_rates), '{}') into keyed, keyed_rates
              from jobwell.jobs j join jobwell.gates c on c.gate = j.gate where j.id = any (picked) and j.lock_key <> '' and c.key_rates is not null;
          end if;
          entries_read := pg_stat_get_xact_tuples_returned('jobwell.jobs_ready'::regclass) - read_before;
          return query
          update jobwell.jobs j
             set state = 'running', attempt = j.attempt + 1, claim_id = p_claim, worker = p_worker, started_at = (select jobwell.now()),
                 dedup = case when j.dedup = 'started' then 'begun' else j.dedup end  -- for good: no retry takes the key again
           where j.id = any (picked)
          returning j.id, j.task, j.queue, j.tenant, j.gate, j.rank, j.attempt, j.failures, j.postponements, j.bytes,
                    extract(epoch from j.deadline - j.started_at)::float8, j.args::text, j.meta::text,
                    (extract(epoch from j.ready_at) * 1000000)::bigint, 0, entries_read;
          get diagnostics got = row_count;
          left_over := left_over - got;
          left_bytes := left_bytes - coalesce(picked_bytes, 0);
          round_got := round_got + got;
          for slot in select array_position(s_name, s) from jsonb_array_elements_text(g.subjects) s loop
            s_room[slot] := s_room[slot] - got;
            s_got[slot] := s_got[slot] + got;
            charged_subject := charged_subject || array_fill(slot, array[coalesce(cardinality(picked), 0)]);
            charged_job := charged_job || picked;
          end loop;
        end if;
        -- What is used up is not walked over again.
        gates_closed := false;
        for slot in select array_position(s_name, s) from jsonb_array_elements_text(g.subjects) s loop
          continue when s_room[slot] > 0;
          closing := true;
          case
            when s_rule[slot] ->> 'kind' = 'tenant' then
              closed_tenants := closed_tenants || l_tenant[numbers[1]];
            when s_rule[slot] ->> 'per' = 'tenant' then
              closed_lanes := closed_lanes || array(select l_queue[n] || '|' || l_gate[n] || '|' || l_tenant[n] from unnest(numbers) n);
            when s_rule[slot] ->> 'kind' = 'queue' then
              gates_closed := true;
              open_queues := array_remove(open_queues, s_rule[slot] ->> 'name');
            else
              gates_closed := true;
              open_gates := array(select o from unnest(open_gates) o where o <> all (array(select l_gate[n] from unnest(numbers) n)));
          end case;
        end loop;
        any_gate_closed := any_gate_closed or gates_closed;
        if gates_closed and not e_closed and not e_kept then
          e_closed := true;
          if first_round and numbers[1] = 1 then
            e_queue := l_queue[1];
            e_gate := l_gate[1];
            e_tenant := case when e_gate = after_gate then after_tenant else '' end;
            foreach slot in array numbers loop
              exit when had_room <= 0;
              had_room := had_room - l_weight[slot]::integer;
              e_queue := l_queue[slot];
              e_gate := l_gate[slot];
              e_tenant := l_tenant[slot];
            end loop;
          end if;
        end if;
      end loop;
      first_round := false;
      exit when left_over <= 0 or left_bytes <= 0;
      if round_got = 0 and p_lanes is null and cardinality(l_queue) > 0 and (cardinality(s_name) >= 300 or parts and width >= 256) then
        -- Enough looked at (and locked) without anything to take: the next claim goes on from here, and this one at lower ranks.
        e_queue := l_queue[cardinality(l_queue)];
        e_gate := l_gate[cardinality(l_queue)];
        e_tenant := l_tenant[cardinality(l_queue)];
        e_lanes := 2;
        e_closed := false;
        e_kept := true;
        exit;
      end if;
      if round_got = 0 and not any_gate_closed and p_lanes is null and cardinality(l_queue) > 0
         and (closing or lane_count > case when wide then width else least(cardinality(l_queue), left_over, 99) end) then
        -- These lanes have nothing to give: their keys are held, their tenants have their quota. There are others behind them.
        width := width * 4;
        continue;
      end if;
      if closing or round_got > 0 and lanes_weigh > 0 and p_lanes is null and lane_count > cardinality(l_queue) then
        continue;  -- the rest of the walk, without what was closed
      end if;
      if after_gate > -9223372036854775808 and p_lanes is null then
        after_gate := -9223372036854775808;
        after_tenant := '';
      else
        exit when round_got = 0;
      end if;
      width := left_over;
    end loop;
    exit when left_over <= 0 or left_bytes <= 0;
  end loop;

  -- What was let in is written down in this commit, under the locks that are still ours.
  v_at := jobwell.now();
  with old as materialized (
    select n as slot, s_name[n] as subject, s_turn[n] as turn from generate_subscripts(s_name, 1) n where s_got[n] > 0),
  gone as (
    -- By the place of each: a join by key walks all that vacuum could not take away yet, as soon as statistics say that little lives.
    delete from jobwell.limit_uses x using (
      select y.at from old o cross join lateral (
        select z.ctid as at from jobwell.limit_uses z where z.subject = o.subject and z.turn = o.turn offset 0) y) o
     where x.ctid = o.at returning x.*),
  kept as (
    select o.slot, o.subject, o.turn, g.tats,
           case when s_look[o.slot] then alive.jobs else coalesce(g.jobs, '{}') end as jobs,
           case when s_look[o.slot] then alive.claims else coalesce(g.claims, '{}') end as claims,
           case when s_look[o.slot] then cardinality(alive.jobs) else coalesce(g.alive, 0) end as alive
      from old o left join gone g on g.subject = o.subject
      left join lateral (
        select coalesce(array_agg(h.id), '{}') as jobs, coalesce(array_agg(h.claim_id), '{}') as claims
          from unnest(g.jobs, g.claims) h(id, claim_id) cross join lateral (
            select from jobwell.jobs j where j.id = h.id and (j.claim_id = h.claim_id and j.state = 'running') is true offset 0) j  -- as in_use
         where s_look[o.slot]) alive on true)
  insert into jobwell.limit_uses (subject, turn, jobs, claims, alive, tats)
  select k.subject, k.turn + 1,
         case when jsonb_typeof(s_rule[k.slot] -> 'c') = 'number' then k.jobs || new.jobs else '{}' end,
         case when jsonb_typeof(s_rule[k.slot] -> 'c') = 'number' then k.claims || array_fill(p_claim, array[cardinality(new.jobs)]) else '{}' end,
         k.alive,
         case when jsonb_typeof(s_rule[k.slot] -> 'r') = 'array' then jobwell.rate_charged((s_rule[k.slot] -> 'r')::json, k.tats, v_at, s_got[k.slot]) || s_since[k.slot] else '{}' end
    from kept k cross join lateral (
      select coalesce(array_agg(charged_job[c]), '{}') as jobs from generate_subscripts(charged_subject, 1) c where charged_subject[c] = k.slot) new;
  if cardinality(keyed) > 0 then
    with old as materialized (
      select x.key, x.rates, y.turn, y.tats from unnest(keyed, keyed_rates) x(key, rates)
        left join lateral (select * from jobwell.limit_uses z where z.subject = 'key:' || x.key order by z.turn desc limit 1) y on true),
    gone as (
      delete from jobwell.limit_uses x using (
        select y.at from old o cross join lateral (
          select z.ctid as at from jobwell.limit_uses z where z.subject = 'key:' || o.key and z.turn = o.turn offset 0) y) o
       where x.ctid = o.at)
    insert into jobwell.limit_uses (subject, turn, tats)
    select 'key:' || o.key, coalesce(o.turn, 0) + 1, jobwell.rate_charged(o.rates, o.tats, v_at, 1) from old o;
  end if;
  if p_hints then
    -- Where the walk ended, whether the last lane has more of its weight to come, and whether something was closed there.
    if e_lanes is not null then
      return query select null::uuid, null::text, e_queue, e_tenant, e_gate,
        at_rank::smallint, null::smallint, null::smallint, null::integer, null::integer,
        case when left_over > 0 then least(next_in, case when contended then 0.002 else 'infinity' end) end,
        null::text, null::text, null::bigint, e_lanes, e_closed::integer::bigint;
    elsif left_over > 0 and (contended or next_in < 'infinity') then
      return query select null::uuid, null::text, null::text, null::text, null::bigint, null::smallint, null::smallint, null::smallint,
        null::integer, null::integer, least(next_in, case when contended then 0.002 else 'infinity' end), null::text, null::text,
        null::bigint, 0, 0::bigint;
    end if;
  end if;
end $$;

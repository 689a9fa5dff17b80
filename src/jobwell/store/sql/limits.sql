-- name: publish
-- What a worker that starts declares. A value is taken if this code is the younger one, or if no live worker has the code that
-- declared it: of two releases side by side the later decides, and going back to an earlier one is possible.
with me as (
  insert into jobwell.limit_editions (edition) values (:edition) on conflict (edition) do update set edition = excluded.edition returning edition, first_seen),
mine as (
  update jobwell.workers set edition = :edition where id = :worker),
over as materialized (
  select l.kind, l.name, l.per from jobwell.limits l
    left join jobwell.limit_editions e on e.edition = l.edition
   where l.edition is null or l.edition = :edition or e.first_seen is null or e.first_seen < (select first_seen from me)
      or not exists (select from jobwell.workers w where w.edition = l.edition and w.state <> 'dead' and w.id <> :worker)),
given as materialized (
  select * from json_to_recordset(:given::json) g(kind text, name text, per text, concurrency integer, rates json, weight double precision)
   order by kind, name, per),
retired as (
  -- What no live code declares any more: gone, but for what an operator has set.
  delete from jobwell.limits l
   where l.declared and l.override is null and l.edition <> :edition
     and not exists (select from given g where (g.kind, g.name, g.per) = (l.kind, l.name, l.per))
     and not exists (select from jobwell.workers w where w.edition = l.edition and w.state <> 'dead' and w.id <> :worker)
  returning 1),
told as (
  insert into jobwell.limits as l (kind, name, per, concurrency, rates, weight, declared, edition)
  select g.kind, g.name, g.per, g.concurrency, g.rates, g.weight, true, :edition from given g
  on conflict (kind, name, per) do update
     set concurrency = excluded.concurrency, rates = excluded.rates, weight = excluded.weight, declared = true, edition = excluded.edition
   where (l.kind, l.name, l.per) in (select o.kind, o.name, o.per from over o)
     and (l.concurrency, l.rates::text, l.weight, l.edition) is distinct from (excluded.concurrency, excluded.rates::text, excluded.weight, excluded.edition)
  returning 1)
select count(*)::integer from told;

-- name: gates
-- What is behind the gates of a worker's tasks; before it claims at the first of them.
insert into jobwell.gates as k (gate, task, resources, busy, ordered, key_rates, seen_at)
select g.gate, g.task, array(select json_array_elements_text(g.resources)), g.busy, g.ordered, g.key_rates, jobwell.now()
  from json_to_recordset(:given::json) g(gate bigint, task text, resources json, busy text, ordered boolean, key_rates json)
 order by g.gate
on conflict (gate) do update set task = excluded.task, resources = excluded.resources, busy = excluded.busy, ordered = excluded.ordered,
                                 key_rates = excluded.key_rates, seen_at = excluded.seen_at
 where (k.task, k.resources, k.busy, k.ordered, k.key_rates::text) is distinct from
       (excluded.task, excluded.resources, excluded.busy, excluded.ordered, excluded.key_rates::text)
    or k.seen_at < excluded.seen_at - interval '1 hour';

-- name: adopt
-- A gate of a known task that no worker has told of: found by its jobs.
insert into jobwell.gates (gate, task, resources) values (:gate, :task, :resources) on conflict (gate) do nothing;

-- name: set
-- What an operator sets goes before what code declares, until it is cleared or its time is over.
insert into jobwell.limits as l (kind, name, per, override, set_at, set_by, set_why, set_until)
values (:kind, :name, :per, :override::jsonb, jobwell.now(), :actor, :why, :until::timestamptz)
on conflict (kind, name, per) do update
   set override = case when l.set_until is null or l.set_until > jobwell.now() then coalesce(l.override, '{}') else '{}' end || excluded.override,
       set_at = excluded.set_at, set_by = excluded.set_by, set_why = excluded.set_why, set_until = excluded.set_until
returning kind, name, per;

-- name: clear
with cleared as (
  update jobwell.limits l set override = null, set_at = null, set_by = null, set_why = null, set_until = null
   where l.kind = :kind and l.name = :name and l.per = :per and l.override is not null and l.declared
  returning kind, name, per),
gone as (
  delete from jobwell.limits l where l.kind = :kind and l.name = :name and l.per = :per and not l.declared returning kind, name, per)
select * from cleared union all select * from gone;

-- name: list
-- Every limit: what counts now, what code says, who set what, and how much is in use.
select l.kind, l.name, l.per, f.concurrency, f.rates, f.weight, l.declared, l.concurrency as code_concurrency, l.rates as code_rates,
       l.weight as code_weight, l.override, l.set_at, l.set_by, l.set_why, l.set_until,
       l.override is not null and (l.set_until is null or l.set_until > jobwell.now()) as set_counts,
       case when l.per = 'fleet' and l.name <> '*' then jobwell.in_use(l.kind || ':' || l.name) end as in_use
  from jobwell.limits l join jobwell.limits_in_force f using (kind, name, per)
 where (:kind::text is null or l.kind = :kind) and (:name::text is null or l.name = :name)
 order by l.kind, l.name, l.per;

-- name: known
-- Names that a limit or a hold of this kind can be for: declared, limited, or in use.
select unnest(k.resources) as name from jobwell.gates k where :kind = 'resource'
union select l.name from jobwell.limits l where l.kind = :kind and l.name <> '*'
union select c.task from jobwell.catalog c where :kind = 'task'
union select c.spec ->> 'queue' from jobwell.catalog c where :kind = 'queue' and c.spec ->> 'queue' is not null
union select unnest(w.queues) from jobwell.workers w where :kind = 'queue' and w.state <> 'dead'
order by 1 limit 10000;

-- name: tenant_seen
-- Whether any job is of this tenant.
select exists (select from jobwell.jobs where tenant = :name) or exists (select from jobwell.finished where tenant = :name)
    or exists (select from jobwell.quarantine where tenant = :name);

-- name: hold
insert into jobwell.holds (kind, name, held_by, held_why, held_until)
select :kind, n, :actor, :why, :until::timestamptz from unnest(:names::text[]) n
on conflict (kind, name) do update set held_at = jobwell.now(), held_by = excluded.held_by, held_why = excluded.held_why, held_until = excluded.held_until
returning name;

-- name: release
delete from jobwell.holds where kind = :kind and (:everything or name = any (:names::text[])) returning name;

-- name: held
select kind, name, held_at, held_by, held_why, held_until from jobwell.holds
 where held_until is null or held_until > (select jobwell.now()) order by kind, name;

-- name: delays
-- What a hold until then would delay: jobs that wait behind it, and how many of them would pass their deadline. Both stop at :cap.
with behind as (
  select j.deadline from jobwell.jobs j left join jobwell.gates k on k.gate = j.gate
   where j.state in ('ready', 'scheduled', 'retrying')
     and case :kind when 'queue' then :name = '*' or j.queue = :name when 'task' then coalesce(k.task, j.task) = :name
                    when 'resource' then :name = any (k.resources) else j.tenant = :name end
   limit :cap)
select count(*)::integer, count(*) filter (where b.deadline <= :until::timestamptz)::integer, min(b.deadline) from behind b;

-- name: forget
delete from jobwell.holds where held_until <= (select jobwell.now());

-- name: forget_uses
select jobwell.forget_uses(:limit);

-- name: behind
-- The limits on a waiting job that have no room now.
select s.subject, s.kind, s.name, s.per, s.concurrency, s.rates, jobwell.in_use(s.subject) as used, r.room, r.wait,
       array(select h.id from (select u.jobs, u.claims from jobwell.limit_uses u where u.subject = s.subject order by u.turn desc limit 1) u
              cross join lateral unnest(u.jobs, u.claims) h(id, claim_id)
               join jobwell.jobs x on x.id = h.id and x.claim_id = h.claim_id and x.state = 'running' limit 5) as holders
  from jobwell.jobs j
 cross join lateral jobwell.limits_on(j.queue, j.gate, j.task, j.tenant, '', null) s
  left join lateral (select u.tats from jobwell.limit_uses u where u.subject = s.subject order by u.turn desc limit 1) u on true
 cross join lateral jobwell.rate_room(s.rates, u.tats, jobwell.now(), 1) r
 where j.id = :id and s.per in ('fleet', 'tenant');

-- name: holding
-- The holds on a waiting job.
select h.kind, h.name, h.held_at, h.held_by, h.held_why, h.held_until
  from jobwell.jobs j left join jobwell.gates k on k.gate = j.gate
  join jobwell.holds h on (h.kind = 'tenant' and h.name = j.tenant or h.kind = 'task' and h.name = coalesce(k.task, j.task)
                           or h.kind = 'resource' and h.name = any (k.resources))
 where j.id = :id and (h.held_until is null or h.held_until > (select jobwell.now()));

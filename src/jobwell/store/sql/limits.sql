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
bare as (
  -- The same where an operator has set something: that stays, and nothing comes back when it ends.
  update jobwell.limits l set declared = false, concurrency = null, rates = null, weight = null, edition = null
   where l.declared and l.override is not null and l.edition <> :edition
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
insert into jobwell.gates as k (gate, task, resources, busy, ordered, key_rates, follow_up, seen_at)
select g.gate, g.task, array(select json_array_elements_text(g.resources)), g.busy, g.ordered, g.key_rates, g.follow_up, jobwell.now()
  from json_to_recordset(:given::json) g(gate bigint, task text, resources json, busy text, ordered boolean, key_rates json,
                                         follow_up jsonb)
 order by g.gate
on conflict (gate) do update set task = excluded.task, resources = excluded.resources, busy = excluded.busy, ordered = excluded.ordered,
                                 key_rates = excluded.key_rates, follow_up = excluded.follow_up, seen_at = excluded.seen_at
 where (k.task, k.resources, k.busy, k.ordered, k.key_rates::text, k.follow_up) is distinct from
       (excluded.task, excluded.resources, excluded.busy, excluded.ordered, excluded.key_rates::text, excluded.follow_up)
    or k.seen_at < excluded.seen_at - interval '1 hour';

-- name: adopt
-- A gate of a known task that no worker has told of: found by its jobs.
-- A resource that only one of two releases names limits what waits there, too.
insert into jobwell.gates as k (gate, task, resources) values (:gate, :task, :resources)
on conflict (gate) do update set resources = array(select distinct r from unnest(k.resources || excluded.resources) r order by r)
 where not k.resources @> excluded.resources;

-- name: set
-- What an operator sets goes before what code declares, until it is cleared or its time is over.
insert into jobwell.limits as l (kind, name, per, override, set_at, set_by, set_why, set_until)
values (:kind, :name, :per, :override::jsonb, jobwell.now(), :actor, :why, :until::timestamptz)
on conflict (kind, name, per) do update
   set override = case when l.set_until is null or l.set_until > jobwell.now() then coalesce(l.override, '{}') else '{}' end || excluded.override,
       set_at = excluded.set_at, set_by = excluded.set_by, set_why = excluded.set_why, set_until = excluded.set_until
returning kind, name, per;

-- name: clear
-- Without :per all of them.
with cleared as (
  update jobwell.limits l set override = null, set_at = null, set_by = null, set_why = null, set_until = null
   where l.kind = :kind and l.name = :name and (:per::text is null or l.per = :per) and l.override is not null and l.declared
  returning per),
gone as (
  delete from jobwell.limits l where l.kind = :kind and l.name = :name and (:per::text is null or l.per = :per) and not l.declared returning per)
select per from cleared union all select per from gone order by 1;

-- name: list
-- Every limit: what counts now, what code says, who set what, and how much is in use.
select l.kind, l.name, l.per, f.concurrency, f.rates, f.weight, l.declared, l.concurrency as code_concurrency, l.rates as code_rates,
       l.weight as code_weight, l.override, l.set_at, l.set_by, l.set_why, l.set_until,
       l.override is not null and (l.set_until is null or l.set_until > jobwell.now()) as set_counts,
       case when l.per = 'fleet' and l.name <> '*' and f.concurrency is not null then jobwell.in_use(l.kind || ':' || l.name) end as in_use
  from jobwell.limits l join jobwell.limits_in_force f using (kind, name, per)
 where (:kind::text is null or l.kind = :kind) and (:name::text is null or l.name = :name)
   and (not :only_set or l.override is not null and (l.set_until is null or l.set_until > (select jobwell.now())))
 order by l.kind, l.name, l.per;

-- name: known
-- Names that a limit or a hold of this kind can be for: declared, limited, held, or in use.
select unnest(k.resources) as name from jobwell.gates k where :kind = 'resource'
union select l.name from jobwell.limits l where l.kind = :kind and l.name <> '*'
union select h.name from jobwell.holds h where h.kind = :kind
union select k.task from jobwell.gates k where :kind = 'task'
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
-- What a hold until then would delay: jobs that are to start before, and how many of them would pass their deadline. Both stop at :cap.
with behind as (
  select j.deadline from jobwell.jobs j left join jobwell.gates k on k.gate = j.gate
   where (j.state = 'ready' or j.state in ('scheduled', 'retrying') and j.run_at < :until::timestamptz)
     and case :kind when 'queue' then :name = '*' or j.queue = :name when 'task' then coalesce(k.task, j.task) = :name
                    when 'resource' then :name = any (k.resources) else j.tenant = :name end
   limit :cap)
select count(*)::integer, count(*) filter (where b.deadline <= :until::timestamptz)::integer, min(b.deadline) from behind b;

-- name: forget
delete from jobwell.holds where held_until <= (select jobwell.now());

-- name: forget_set
-- What operators had set for a time that is over.
with cleared as (
  update jobwell.limits set override = null, set_at = null, set_by = null, set_why = null, set_until = null
   where set_until <= (select jobwell.now()) and declared returning 1),
gone as (
  delete from jobwell.limits where set_until <= (select jobwell.now()) and not declared returning 1)
select (select count(*) from cleared)::integer + (select count(*) from gone)::integer;

-- name: adopt_running
select jobwell.adopt_running();

-- name: forget_uses
select jobwell.forget_uses(:limit);

-- name: uses
-- Who uses a limit of the whole fleet now, and when its rate lets the next one in. A tenant that is not named has that of '*'.
select jobwell.in_use(s.subject), r.wait::float8,
       array(select h.id from unnest(u.jobs, u.claims) h(id, claim_id)
               join jobwell.jobs x on x.id = h.id and x.claim_id = h.claim_id and x.state = 'running' order by x.started_at limit :limit)
  from (select f.kind || ':' || :name as subject, f.rates from jobwell.limits_in_force f
         where f.kind = :kind and f.per = 'fleet' and (f.concurrency is not null or f.rates is not null)
           and (f.name = :name or f.kind = 'tenant' and f.name = '*')
         order by f.name = '*' limit 1) s
  left join lateral (select y.jobs, y.claims, y.tats from jobwell.limit_uses y where y.subject = s.subject order by y.turn desc limit 1) u on true
 cross join lateral jobwell.rate_room(s.rates, u.tats, (select jobwell.now()), 1) r;

-- name: behind
-- The limits on a waiting job, each with its room. Of one that counts for each host or process: there where there is most.
with j as materialized (
  select queue, gate, task, tenant from jobwell.jobs where id = :id),
w as materialized (
  select distinct w.host, w.id from j join jobwell.workers w on j.queue = any (w.queues) and (w.tasks = '{}' or j.task = any (w.tasks))
   where w.state = 'live' and w.lease_until > jobwell.now() limit 1000),
s as materialized (
  select distinct on (l.subject) l.* from (
    select l.subject, l.kind, l.name, l.per, l.concurrency, l.rates::text as rates
      from j cross join lateral jobwell.limits_on(j.queue, j.gate, j.task, j.tenant, '', null) l where l.per in ('fleet', 'tenant')
    union all
    select l.subject, l.kind, l.name, l.per, l.concurrency, l.rates::text
      from j cross join w cross join lateral jobwell.limits_on(j.queue, j.gate, j.task, j.tenant, w.host, w.id) l
     where l.per in ('host', 'process') and exists (select from jobwell.limits where per in ('host', 'process'))) l),
seen as materialized (
  select s.*, jobwell.in_use(s.subject) as used, r.room, r.wait,
         array(select h.id from unnest(u.jobs, u.claims) h(id, claim_id)
                 join jobwell.jobs x on x.id = h.id and x.claim_id = h.claim_id and x.state = 'running' order by x.started_at limit :limit) as holders
    from s
    left join lateral (select y.jobs, y.claims, y.tats from jobwell.limit_uses y where y.subject = s.subject order by y.turn desc limit 1) u on true
   cross join lateral jobwell.rate_room(s.rates::json, u.tats, (select jobwell.now()), 1) r)
select distinct on (n.kind, n.name, n.per) n.kind, n.name, n.per, n.concurrency, n.rates::json, n.used, n.wait::float8, n.holders
  from seen n
 order by n.kind, n.name, n.per, coalesce(n.used >= n.concurrency, false) or n.room < 1, n.wait, n.used;

-- name: holding
-- The holds on a waiting job.
select h.kind, h.name, h.held_at, h.held_by, h.held_why, h.held_until
  from jobwell.jobs j left join jobwell.gates k on k.gate = j.gate
  join jobwell.holds h on (h.kind = 'tenant' and h.name = j.tenant or h.kind = 'task' and h.name = coalesce(k.task, j.task)
                           or h.kind = 'resource' and h.name = any (k.resources))
 where j.id = :id and (h.held_until is null or h.held_until > (select jobwell.now()));

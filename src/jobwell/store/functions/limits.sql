-- version: 5
-- Limits, rates, weights and holds. docs/limits-and-rates.md tells it in words.
--
-- A limit has subjects: the thing itself ('resource:sms'), or that thing on a host, in a process, for a tenant. What is in use of a
-- subject stands in limit_uses and changes only under an advisory lock of the subject, in the commit of the claim that lets jobs
-- in. Nobody gives anything back: a job that has ended is not running under that claim any more, and so does not count.

-- Each limit as it counts at this moment: what an operator has set goes before what code has declared. A resource whose breaker
-- has been open for its time is probed: so many jobs of it at once, in the whole fleet.
create or replace view jobwell.limits_in_force as
select l.kind, l.name, l.per,
       least(case when o.counts and l.override ? 'concurrency' then (l.override ->> 'concurrency')::integer else l.concurrency end,
             case when l.kind = 'resource' and l.per = 'fleet' then (
               select b.probes from jobwell.breakers b where b.resource = l.name and b.state = 'open' and b.until <= (select jobwell.now())) end) as concurrency,
       case when o.counts and l.override ? 'rates' then nullif(l.override -> 'rates', 'null')::json else l.rates end as rates,
       case when o.counts and l.override ? 'weight' then (l.override ->> 'weight')::double precision else l.weight end as weight
  from jobwell.limits l
 cross join lateral (select l.set_at is not null and (l.set_until is null or l.set_until > (select jobwell.now())) as counts) o;

-- How many more jobs a rate lets in now (at most p_most), and the seconds until it lets in one. Each window has a time at which
-- the next job would be on time; one may come early by `slack`.
create or replace function jobwell.rate_room(p_rates json, p_tats timestamptz[], p_now timestamptz, p_most integer,
  out room integer, out wait double precision)
language plpgsql immutable as $$
declare
  r record;
  behind double precision;
begin
  room := p_most;
  wait := 0;
  for r in select x.every, x.slack, x.number from rows from (json_to_recordset(p_rates) as (every double precision, slack double precision))
             with ordinality x(every, slack, number) loop
    -- No further ahead than this rate itself can put it: a window may stem from another one, which counted before.
    behind := r.slack - least(r.slack + r.every, greatest(0, extract(epoch from coalesce(p_tats[r.number], p_now) - p_now)));
    if behind < 0 then
      room := 0;
      wait := greatest(wait, -behind);
    else
      room := least(room, floor(least(behind / r.every, 1000000))::integer + 1);
    end if;
  end loop;
end $$;

-- The windows after so many jobs more. Negative: not started after all, and given back.
create or replace function jobwell.rate_charged(p_rates json, p_tats timestamptz[], p_now timestamptz, p_jobs integer) returns timestamptz[]
language sql immutable as $$
  select coalesce(array_agg(
           case when p_jobs < 0 then coalesce(p_tats[x.number], p_now) else greatest(least(coalesce(p_tats[x.number], p_now), p_now + (x.slack + x.every) * interval '1 second'), p_now) end
             + x.every * p_jobs * interval '1 second' order by x.number), '{}')
    from rows from (json_to_recordset(p_rates) as (every double precision, slack double precision)) with ordinality x(every, slack, number)
$$;

-- What a job would be limited by: its subjects, with their values.
create or replace function jobwell.limits_on(p_queue text, p_gate bigint, p_task text, p_tenant text, p_host text, p_worker uuid)
returns table (subject text, kind text, name text, per text, concurrency integer, rates json)
language sql volatile as $$
  select f.kind || ':' || case when f.kind = 'tenant' then p_tenant else f.name end
           || case f.per when 'host' then '@' || p_host when 'process' then '@' || p_worker when 'tenant' then '|' || p_tenant else '' end,
         f.kind, f.name, f.per, f.concurrency, f.rates
    from jobwell.limits_in_force f
    left join jobwell.gates k on k.gate = p_gate
   where (f.concurrency is not null or f.rates is not null)
     and case f.kind
           when 'queue' then f.name = p_queue
           when 'task' then f.name = coalesce(k.task, p_task)
           when 'resource' then f.name = any (k.resources)
           else p_tenant <> '' and (f.name = p_tenant or f.name = '*' and not exists (
             select from jobwell.limits_in_force n where n.kind = 'tenant' and n.name = p_tenant and (n.concurrency is not null or n.rates is not null)))
         end
     and (f.per <> 'tenant' or p_tenant <> '')
$$;

-- How many jobs of a subject run now. Each is looked up by its id: `is true` keeps the planner from reading all that run, which
-- it takes for few, once for each of them.
create or replace function jobwell.in_use(p_subject text) returns integer
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  select count(*)::integer
    from (select u.jobs, u.claims from jobwell.limit_uses u where u.subject = p_subject order by u.turn desc limit 1) u
   cross join lateral unnest(u.jobs, u.claims) h(id, claim_id)
   cross join lateral (
     select from jobwell.jobs j where j.id = h.id and (j.claim_id = h.claim_id and j.state = 'running') is true offset 0) j
$$;

-- Count what runs already under limits that are new. Returns for how many subjects there was something. A claim that was under way
-- when the limit came may be missed.
create or replace function jobwell.adopt_running() returns integer
language plpgsql volatile as $$
declare
  s record;
  u record;
  adopted integer := 0;
begin
  for s in
    select l.subject, array_agg(j.id) as jobs, array_agg(j.claim_id) as claims
      from jobwell.jobs j join jobwell.workers w on w.id = j.worker
     cross join lateral jobwell.limits_on(j.queue, j.gate, j.task, j.tenant, w.host, w.id) l
     where j.state = 'running' and l.concurrency is not null
     group by l.subject order by l.subject loop
    perform pg_advisory_xact_lock(hashtextextended('jobwell.limit:' || s.subject, 0));
    select x.* into u from jobwell.limit_uses x where x.subject = s.subject order by x.turn desc limit 1;
    select array_agg(n.id) as jobs, array_agg(n.claim_id) as claims into s.jobs, s.claims
      from unnest(s.jobs, s.claims) n(id, claim_id)
     where not exists (select from unnest(u.jobs, u.claims) k(id, claim_id) where (k.id, k.claim_id) = (n.id, n.claim_id));
    if s.jobs is not null then
      insert into jobwell.limit_uses (subject, turn, jobs, claims, alive, tats)
      values (s.subject, coalesce(u.turn, 0) + 1, coalesce(u.jobs, '{}') || s.jobs, coalesce(u.claims, '{}') || s.claims, coalesce(u.alive, 0), coalesce(u.tats, '{}'));
      delete from jobwell.limit_uses x where x.subject = s.subject and x.turn = u.turn;
      adopted := adopted + 1;
    end if;
  end loop;
  return adopted;
end $$;

-- Whether a key's own rate lets its next job in.
create or replace function jobwell.key_open(p_key text, p_rates json) returns boolean
language sql volatile as $$
  select p_rates is null or coalesce((
    select (jobwell.rate_room(p_rates, u.tats, (select jobwell.now()), 1)).room > 0
      from jobwell.limit_uses u where u.subject = 'key:' || p_key order by u.turn desc limit 1), true)
$$;

-- Drop what waits for a key that is held, where its lock says so. Seen by whoever looks for work.
create or replace function jobwell.skip_busy(p_gates bigint[], p_limit integer) returns integer
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  skipping bigint[] := array(select k.gate from jobwell.gates k where k.busy = 'skip' and k.gate = any (p_gates));
  dropped integer;
begin
  if cardinality(skipping) = 0 then
    return 0;
  end if;
  with holder as materialized (
    select r.id, r.lock_key from jobwell.jobs r where r.state = 'running' and r.lock_key <> '' and r.gate = any (skipping)),
  over as (
    delete from jobwell.jobs j where j.id = any (array(
      select x.id from holder h cross join lateral (
        select j.id from jobwell.jobs j where j.state = 'ready' and j.lock_key = h.lock_key and j.lock_key <> '' and j.gate = any (skipping)
           and j.attempt + j.losses + j.crashes + j.postponements = 0  -- what has begun is not dropped
         limit p_limit for update skip locked) x))
    returning j.*)
  insert into jobwell.finished (id, finished_at, enqueued_at, run_at, started_at, worker, rank, attempt, failures, bytes,
                                queue, task, state, tenant, args, meta, note)
  select o.id, (select jobwell.now()), o.enqueued_at, o.run_at, o.started_at, o.worker, o.rank, o.attempt, o.failures, o.bytes,
         o.queue, o.task, 'cancelled', o.tenant, o.args, o.meta, 'skipped: its key was held by job ' || h.id
    from over o join holder h on h.lock_key = o.lock_key;
  get diagnostics dropped = row_count;
  return dropped;
end $$;

-- Jobs that did not start after all: they go back uncounted, and rates give back what was charged for them. As `postpone`.
-- Only while nothing was charged after them (the last of `tats` is when the last charge began): what others used since then
-- was on time without these jobs too, so that a late gift would be one more than the rate. A key has had nobody else since.
create or replace function jobwell.unstarted(p_given json) returns setof uuid
language plpgsql volatile as $$
declare
  s record;
  u record;
  number integer;
begin
  if exists (select from jobwell.limits l where l.rates is not null or l.override ? 'rates') then
    for s in
      select l.subject, l.rates::text as rates, array_agg(j.started_at) as started
        from json_to_recordset(p_given) g(id uuid, claim_id uuid)
        join jobwell.jobs j on j.id = g.id and j.claim_id = g.claim_id and j.state = 'running'
        join jobwell.workers w on w.id = j.worker
       cross join lateral jobwell.limits_on(j.queue, j.gate, j.task, j.tenant, w.host, w.id) l
       where l.rates is not null
       group by l.subject, l.rates::text order by l.subject loop
      perform pg_advisory_xact_lock(hashtextextended('jobwell.limit:' || s.subject, 0));
      select x.* into u from jobwell.limit_uses x where x.subject = s.subject order by x.turn desc limit 1;
      continue when not found;
      number := (select count(*) from unnest(s.started) started where started >= u.tats[cardinality(u.tats)]);
      if number > 0 then
        insert into jobwell.limit_uses (subject, turn, jobs, claims, alive, tats)
        values (u.subject, u.turn + 1, u.jobs, u.claims, u.alive,
                jobwell.rate_charged(s.rates::json, u.tats, jobwell.now(), -number) || u.tats[cardinality(u.tats)]);
        delete from jobwell.limit_uses x where x.subject = u.subject and x.turn = u.turn;
      end if;
    end loop;
  end if;
  if exists (select from jobwell.gates k where k.key_rates is not null) then
    with given_back as materialized (
      select y.subject, y.turn, jobwell.rate_charged(k.key_rates, y.tats, jobwell.now(), -1) as tats
        from json_to_recordset(p_given) g(id uuid, claim_id uuid)
        join jobwell.jobs j on j.id = g.id and j.claim_id = g.claim_id and j.state = 'running' and j.lock_key <> ''
        join jobwell.gates k on k.gate = j.gate and k.key_rates is not null
       cross join lateral (select * from jobwell.limit_uses z where z.subject = 'key:' || j.lock_key order by z.turn desc limit 1) y),
    gone as (  -- by place, as in claim_within
      delete from jobwell.limit_uses x using (
        select y.at from given_back o cross join lateral (
          select z.ctid as at from jobwell.limit_uses z where z.subject = o.subject and z.turn = o.turn offset 0) y) o
       where x.ctid = o.at)
    insert into jobwell.limit_uses (subject, turn, tats) select o.subject, o.turn + 1, o.tats from given_back o;
  end if;
  return query select * from jobwell.postpone(p_given);
end $$;

-- What nobody needs any more: uses of processes and keys that are gone. Returns how many rows went.
create or replace function jobwell.forget_uses(p_limit integer) returns integer
language plpgsql volatile as $$
declare
  gone integer;
begin
  -- Only what may go is locked: locks of everything that is in use would fill the server's table of locks.
  delete from jobwell.limit_uses u
   where (u.subject, u.turn) in (
     select x.subject, x.turn from (
       select x.subject, x.turn from jobwell.limit_uses x
        where not exists (select from unnest(x.tats) t where t > (select jobwell.now()))
          and not exists (select from unnest(x.jobs, x.claims) h(id, claim_id) cross join lateral (
                select from jobwell.jobs j where j.id = h.id and (j.claim_id = h.claim_id and j.state = 'running') is true offset 0) j)
        limit p_limit offset 0) x
      where pg_try_advisory_xact_lock(hashtextextended('jobwell.limit:' || x.subject, 0)));
  get diagnostics gone = row_count;
  return gone;
end $$;

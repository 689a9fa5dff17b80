-- name: declare
-- What the code of a worker declares. One that is open stays so.
insert into jobwell.breakers as b (resource, probes, span)
select g.resource, g.probes, g.span from json_to_recordset(:given::json) g(resource text, probes integer, span float8) order by g.resource
on conflict (resource) do update set probes = excluded.probes, span = excluded.span, declared_at = jobwell.now();

-- name: undeclare
-- Resources that this code declares without one.
delete from jobwell.breakers where resource = any (:names::text[]);

-- name: feed
-- Add what calls told. What was begun in an earlier term says nothing about this one.
update jobwell.breakers b
   set half_at = case r.halves when 0 then b.half_at when 1 then b.half_at + b.span / 2 * interval '1 second' else jobwell.now() end,
       good = case when r.halves = 0 then b.good else 0 end + case when g.term = b.term then g.good else 0 end,
       bad = case when r.halves = 0 then b.bad else 0 end + case when g.term = b.term then g.bad else 0 end,
       firsts = case when r.halves = 0 then b.firsts else 0 end + g.firsts,
       retries = case when r.halves = 0 then b.retries else 0 end + g.retries,
       good_before = case r.halves when 0 then b.good_before when 1 then b.good else 0 end,
       bad_before = case r.halves when 0 then b.bad_before when 1 then b.bad else 0 end,
       firsts_before = case r.halves when 0 then b.firsts_before when 1 then b.firsts else 0 end,
       retries_before = case r.halves when 0 then b.retries_before when 1 then b.retries else 0 end
  from json_to_recordset(:given::json) g(resource text, term bigint, good integer, bad integer, firsts integer, retries integer)
  join jobwell.breakers h using (resource)
 cross join lateral (select least(2, greatest(0, floor(extract(epoch from jobwell.now() - h.half_at) * 2 / h.span)))::integer as halves) r
 where b.resource = g.resource;

-- name: read
-- How they stand. Counts of a time that is over are none.
select b.resource, b.state = 'open', b.term, b.until, b.opens,
       case h.halves when 0 then b.good + b.good_before when 1 then b.good else 0 end,
       case h.halves when 0 then b.bad + b.bad_before when 1 then b.bad else 0 end,
       case h.halves when 0 then b.firsts + b.firsts_before when 1 then b.firsts else 0 end,
       case h.halves when 0 then b.retries + b.retries_before when 1 then b.retries else 0 end, n.now
  from (select jobwell.now() as now) n cross join jobwell.breakers b
 cross join lateral (select floor(extract(epoch from n.now - b.half_at) * 2 / b.span)::integer as halves) h
 where b.resource = any (:names::text[]);

-- name: move
-- From one state to the next, if nobody has done it before.
update jobwell.breakers
   set state = case when :until::timestamptz is null then 'closed' else 'open' end, term = term + 1, since = jobwell.now(),
       until = :until::timestamptz, opens = :opens, why = :why, changed_by = null, good = 0, bad = 0, good_before = 0, bad_before = 0
 where resource = :resource and term = :term
returning term;

-- name: extend
-- An open one, for longer.
update jobwell.breakers set until = :until::timestamptz, why = :why
 where resource = :resource and term = :term and state = 'open' and until < :until::timestamptz
returning term;

-- name: turn
-- As an operator says.
update jobwell.breakers
   set state = case when :until::timestamptz is null then 'closed' else 'open' end, term = term + 1, since = jobwell.now(),
       until = :until::timestamptz, opens = case when :until::timestamptz is null then 0 else opens + 1 end, why = :why, changed_by = :actor,
       good = 0, bad = 0, good_before = 0, bad_before = 0
 where resource = :name and (:until::timestamptz is not null or state = 'open')
returning resource;

-- name: list
-- All of them, or one.
select b.resource, case when b.state = 'open' and b.until <= n.now then 'probing' else b.state end, b.since, b.until, b.opens, b.why, b.changed_by,
       case h.halves when 0 then b.good + b.good_before when 1 then b.good else 0 end,
       case h.halves when 0 then b.bad + b.bad_before when 1 then b.bad else 0 end,
       case h.halves when 0 then b.firsts + b.firsts_before when 1 then b.firsts else 0 end,
       case h.halves when 0 then b.retries + b.retries_before when 1 then b.retries else 0 end,
       b.probes, b.span
  from (select jobwell.now() as now) n cross join jobwell.breakers b
 cross join lateral (select floor(extract(epoch from n.now - b.half_at) * 2 / b.span)::integer as halves) h
 where :name::text is null or b.resource = :name
 order by b.resource;

-- name: before
-- The breakers that are not closed before a waiting job.
select b.resource, case when b.until <= n.now then 'probing' else 'open' end, b.since, b.until, b.why, b.changed_by
  from (select jobwell.now() as now) n cross join jobwell.jobs j join jobwell.gates k on k.gate = j.gate
  join jobwell.breakers b on b.state = 'open' and b.resource = any (k.resources)
 where j.id = :id order by b.resource;

-- name: by_id
-- The runs whose ids begin as typed; two tell that there are several.
select r.id from jobwell.runs r where r.id between :low and :high limit 2;

-- name: by_key
-- The runs with a key, whatever their operation; a refused one only where there is no other.
select r.id, r.operation from jobwell.runs r where r.run_key = :key and (:operation::text is null or r.operation = :operation)
 order by r.refused, r.created_at desc limit 2;

-- name: listed
-- The newest runs.
select r.id, r.operation, r.run_key, r.state, r.items, r.bad, r.started_by, r.created_at, r.ended_at, r.sealed or r.refused, jobwell.now()
  from jobwell.runs r
 where (:operation::text is null or r.operation = :operation) and (:state::text is null or r.state = :state)
   and (:before::uuid is null or (r.created_at, r.id) < (select b.created_at, b.id from jobwell.runs b where b.id = :before))
 order by r.created_at desc, r.id desc limit :limit;

-- name: counts
-- The counters of their stages.
select t.run_id, t.stage, t.name, t.after, t.state, coalesce(sum(c.done), 0)::bigint, coalesce(sum(c.failed), 0)::bigint,
       coalesce(sum(c.skipped), 0)::bigint, coalesce(sum(c.cancelled), 0)::bigint
  from jobwell.run_stages t left join jobwell.run_counts c on c.run_id = t.run_id and c.stage = t.stage
 where t.run_id = any (:runs::uuid[]) and t.kind = 'items' group by t.run_id, t.stage order by t.run_id, t.stage;

-- name: operations
select distinct r.operation from jobwell.runs r order by 1 limit 1000;

-- name: items
-- Items in the order of their numbers, page by page.
select i.no, i.key, i.data::text from jobwell.run_items i where i.run_id = :run and i.no > :after::bigint order by i.no limit :limit;

-- name: states
-- What became of a page of them in one stage.
select s.no, s.state, s.code, s.message, s.attempt, s.at from jobwell.run_states s
 where s.run_id = :run and s.stage = :stage::smallint and s.no between :first::bigint and :last::bigint;

-- name: stages
select t.stage, t.name, t.after from jobwell.run_stages t where t.run_id = :run and t.kind = 'items' order by t.stage;

-- name: first_data
-- Of some items, to know their fields.
select i.data::text from jobwell.run_items i where i.run_id = :run order by i.no limit :limit;

-- name: pace
-- When items came to an end, in slices of the time between two moments.
select s.stage, s.slice, count(*), count(*) filter (where s.state = 'failed')
  from (select x.stage, x.state,
               least(greatest(width_bucket(extract(epoch from x.at), extract(epoch from :since::timestamptz),
                                           extract(epoch from :until::timestamptz), :slices::integer), 1), :slices::integer) as slice
          from jobwell.run_states x where x.run_id = :run and x.state not in ('open', 'cancelled')) s
 group by s.stage, s.slice;

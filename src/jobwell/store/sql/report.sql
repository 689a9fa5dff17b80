-- name: kinds
-- How the chosen jobs failed, the most frequent first. One row more than is told, so that the caller sees that there are others.
select q.reason, q.code, q.error_type, count(*)::integer as jobs, sum(count(*)) over ()::integer as total, count(*) over ()::integer as kinds
  from jobwell.failed_within(:since, :until, :filters::jsonb) q
 group by q.reason, q.code, q.error_type order by jobs desc, q.reason, q.code, q.error_type limit :limit;

-- name: scope
-- Tasks of the chosen jobs, and how many tenants they belong to.
select q.task, count(distinct nullif(q.tenant, ''))::integer from jobwell.failed_within(:since, :until, :filters::jsonb) q
 group by grouping sets ((q.task), ()) order by q.task nulls first limit :limit;

-- name: groups
-- The chosen jobs by what they have in common, the largest first. An example is read for the groups that are told only: of a
-- hundred thousand messages the sort would be larger than the table.
with chosen as (
  select case :by::text when 'reason' then q.reason when 'task' then q.task when 'error' then coalesce(q.error_type, '')
              when 'tenant' then q.tenant when 'queue' then q.queue when 'fingerprint' then q.fingerprint
              when 'code' then coalesce(q.code, '') else coalesce(q.meta->>'initiator', '') end as name,
         q.id, q.failed_at, q.tenant
    from jobwell.failed_within(:since, :until, :filters::jsonb) q),
counted as (
  select name, count(*)::integer as jobs, min(failed_at) as first, max(failed_at) as last,
         count(distinct nullif(tenant, ''))::integer as tenants, min(nullif(tenant, '')) as tenant, count(*) over ()::integer as groups,
         (array_agg(id order by failed_at desc, id desc))[1] as example
    from chosen group by name order by jobs desc, name limit :limit)
select c.name, c.jobs, c.first, c.last, c.tenants, c.tenant, left(e.message, 500) as message, c.groups
  from counted c left join jobwell.quarantine e on e.id = c.example
 order by c.jobs desc, c.name;

-- name: jobs
-- One page of them, the newest first; the next begins behind the last row of this one.
select q.id, q.task, q.tenant, q.queue, q.reason, q.code, q.error_type, left(q.message, 2000) as message, q.failed_at, q.attempt,
       q.fingerprint, q.meta::text
  from jobwell.failed_within(:since, :before_at, :filters::jsonb) q
 where (q.failed_at, q.id) < (:before_at::timestamptz, :before_id::uuid)
 order by q.failed_at desc, q.id desc limit :limit;

-- name: count
-- How many there are, counted up to a bound.
select count(*)::integer from (
  select from jobwell.failed_within(:since, :until, :filters::jsonb) limit :most) found;

-- name: owners
-- Who answers for anything.
select distinct spec ->> 'owner' from jobwell.catalog where spec ->> 'owner' is not null
union
select distinct owner from jobwell.quarantine_groups where owner is not null
order by 1;

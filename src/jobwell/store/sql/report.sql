-- name: kinds
-- How the chosen jobs failed, the most frequent first. One row more than is told, so that the caller sees that there are others.
select q.reason, q.code, q.error_type, count(*)::integer as jobs, sum(count(*)) over ()::integer as total, count(*) over ()::integer as kinds
  from jobwell.quarantine q
 where q.failed_at > :since and q.failed_at <= :until
   and (:reason::text is null or q.reason = :reason) and (:task::text is null or q.task = :task)
   and (:queue::text is null or q.queue = :queue) and (:tenant::text is null or q.tenant = :tenant)
   and (:fingerprint::text is null or q.fingerprint = :fingerprint)
   and (:code::text is null or coalesce(q.code, '') = :code) and (:error::text is null or coalesce(q.error_type, '') = :error)
   and (:initiator::text is null or coalesce(q.meta->>'initiator', '') = :initiator)
 group by q.reason, q.code, q.error_type order by jobs desc, q.reason, q.code, q.error_type limit :limit;

-- name: scope
-- Tasks of the chosen jobs, and how many tenants they belong to.
select q.task, count(distinct nullif(q.tenant, ''))::integer from jobwell.quarantine q
 where q.failed_at > :since and q.failed_at <= :until
   and (:reason::text is null or q.reason = :reason) and (:task::text is null or q.task = :task)
   and (:queue::text is null or q.queue = :queue) and (:tenant::text is null or q.tenant = :tenant)
   and (:fingerprint::text is null or q.fingerprint = :fingerprint)
   and (:code::text is null or coalesce(q.code, '') = :code) and (:error::text is null or coalesce(q.error_type, '') = :error)
   and (:initiator::text is null or coalesce(q.meta->>'initiator', '') = :initiator)
 group by grouping sets ((q.task), ()) order by q.task nulls first limit :limit;

-- name: groups
-- The chosen jobs by what they have in common, the largest first. An example is read for the groups that are told only: of a
-- hundred thousand messages the sort would be larger than the table.
with chosen as (
  select case :by::text when 'reason' then q.reason when 'task' then q.task when 'error' then coalesce(q.error_type, '')
              when 'tenant' then q.tenant when 'queue' then q.queue when 'fingerprint' then q.fingerprint
              when 'code' then coalesce(q.code, '') else coalesce(q.meta->>'initiator', '') end as name,
         q.id, q.failed_at, q.tenant
    from jobwell.quarantine q
   where q.failed_at > :since and q.failed_at <= :until
     and (:reason::text is null or q.reason = :reason) and (:task::text is null or q.task = :task)
     and (:queue::text is null or q.queue = :queue) and (:tenant::text is null or q.tenant = :tenant)
     and (:fingerprint::text is null or q.fingerprint = :fingerprint)
     and (:code::text is null or coalesce(q.code, '') = :code) and (:error::text is null or coalesce(q.error_type, '') = :error)
     and (:initiator::text is null or coalesce(q.meta->>'initiator', '') = :initiator)),
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
  from jobwell.quarantine q
 where q.failed_at > :since and (q.failed_at, q.id) < (:before_at::timestamptz, :before_id::uuid)
   and (:reason::text is null or q.reason = :reason) and (:task::text is null or q.task = :task)
   and (:queue::text is null or q.queue = :queue) and (:tenant::text is null or q.tenant = :tenant)
   and (:fingerprint::text is null or q.fingerprint = :fingerprint)
   and (:code::text is null or coalesce(q.code, '') = :code) and (:error::text is null or coalesce(q.error_type, '') = :error)
   and (:initiator::text is null or coalesce(q.meta->>'initiator', '') = :initiator)
 order by q.failed_at desc, q.id desc limit :limit;

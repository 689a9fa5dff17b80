-- version: 1
-- The failed jobs of a period that a report is on. `p_filters` has texts by name: what is not named does not narrow it, and an empty
-- text is those that have none. One plain select, so that it is inlined where it is used, with the index on failed_at.
create or replace function jobwell.failed_within(p_since timestamptz, p_until timestamptz, p_filters jsonb) returns setof jobwell.quarantine
language sql stable as $$
  select q.* from jobwell.quarantine q
   where q.failed_at > p_since and q.failed_at <= p_until
     and (p_filters ->> 'reason' is null or q.reason = p_filters ->> 'reason')
     and (p_filters ->> 'task' is null or q.task = p_filters ->> 'task')
     and (p_filters ->> 'queue' is null or q.queue = p_filters ->> 'queue')
     and (p_filters ->> 'tenant' is null or q.tenant = p_filters ->> 'tenant')
     and (p_filters ->> 'fingerprint' is null or q.fingerprint = p_filters ->> 'fingerprint')
     and (p_filters ->> 'code' is null or coalesce(q.code, '') = p_filters ->> 'code')
     and (p_filters ->> 'error' is null or coalesce(q.error_type, '') = p_filters ->> 'error')
     and (p_filters ->> 'initiator' is null or coalesce(q.meta ->> 'initiator', '') = p_filters ->> 'initiator')
     and (p_filters ->> 'owner' is null or case  -- whom people name for the group, or else the task; each list is read once
           when q.fingerprint in (select g.fingerprint from jobwell.quarantine_groups g where g.owner is not null)
             then q.fingerprint in (select g.fingerprint from jobwell.quarantine_groups g where g.owner = p_filters ->> 'owner')
           when p_filters ->> 'owner' = '' then q.task not in (select c.task from jobwell.catalog c where c.spec ->> 'owner' is not null)
           else q.task in (select c.task from jobwell.catalog c where c.spec ->> 'owner' = p_filters ->> 'owner') end)
$$;

-- version: 2
-- Jobs that wait for others. docs/dependencies.md tells it in words.
--
-- Whatever way a job ends, it leaves its table: a trigger notes that in `unsettled`, for jobs that are linked and only for those. When
-- the transaction is about to commit, the first of its notes settles all of them: so it is the same commit, everything that the
-- transaction did is seen, and rows that others need are locked for the moment of the commit and in one order for everybody:
-- first the jobs that are followed, by id, then the jobs that follow, by id. A job that follows is touched under the lock of its
-- row in `jobs` only: of two last ends that meet, the second one counts what the first has done.

create or replace function jobwell.linked_left() returns trigger
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
  if tg_table_name = 'jobs' then
    delete from jobwell.waits w where w.job = old.id;  -- cancelled while it waited
  end if;
  if exists (select from jobwell.follows f where f.after = old.id) then
    insert into jobwell.unsettled (transaction, after) values (pg_current_xact_id(), old.id);
  end if;
  return null;
end $$;

-- All that follow one of these, also at several removes.
create or replace function jobwell.followers_of(p_ids uuid[]) returns setof uuid
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  with recursive down(job) as (
    select unnest(p_ids)
    union
    select f.job from down d join jobwell.follows f on f.after = d.job)
  select job from down
$$;

-- Whether an end is one that was waited for.
create or replace function jobwell.is_awaited(p_state text, p_ended boolean) returns boolean
language sql immutable as $$ select case when p_ended then p_state <> 'live' else p_state = 'succeeded' end $$;

create or replace function jobwell.settle_followers() returns trigger
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off
as $$
declare
  left_  uuid[];    -- followed jobs that have left their table
  fresh  uuid[];    -- jobs that begin to wait
  looked uuid[];    -- the followed jobs of both
  held   uuid[];
  stood  uuid[];    -- nowhere any more, and their windows hold
  places record;    -- where they stand: ids, states
  edges  record;    -- what changes: at (ctid), job, after, was, now
  wait   uuid[];    -- the jobs concerned that still wait, locked
  queues text[];
begin
  if not exists (select from jobwell.unsettled m where m.id = new.id) then
    return null;  -- an earlier note of the same transaction has seen to it
  end if;
  with mine as (
    delete from jobwell.unsettled m where m.transaction = pg_current_xact_id() returning m.after, m.job)
  select array_agg(distinct m.after) filter (where m.after is not null), array_agg(distinct m.job) filter (where m.job is not null)
    into left_, fresh from mine m;
  looked := array(
    select unnest(left_) union select f.after from jobwell.follows f where f.job = any (fresh));

  -- Where they stand does not change while they are locked there. Who ends one at this moment is waited for, and seen then.
  loop
    held := array(select j.id from jobwell.jobs j where j.id = any (looked) order by j.id for update)
         || array(select q.id from jobwell.quarantine q where q.id = any (looked) order by q.id for update);
    exit when not exists (
      (select j.id from jobwell.jobs j where j.id = any (looked) union all select q.id from jobwell.quarantine q where q.id = any (looked))
      except select unnest(held));
  end loop;
  -- Also where it is linked already, while it runs: a transaction of its task's may see an old snapshot only (repeatable read), and
  -- would end it without a look at what has begun to follow since. It cannot be serialized with this, and is tried again.
  update jobwell.jobs j set linked = true where j.id = any (looked) and (not j.linked or (j.state = 'running' and fresh is not null));
  select array_agg(p.id) as ids, array_agg(p.state) as states into places from (
    select distinct on (s.id) s.id, s.state from (
      select 1 as place, j.id, 'live' as state from jobwell.jobs j where j.id = any (looked)
      union all
      select 2, q.id, 'failed' from jobwell.quarantine q where q.id = any (looked)
      union all
      select 3, f.id, case f.state when 'failed' then 'discarded' else f.state end from jobwell.finished f where f.id = any (looked)) s
     order by s.id, s.place) p;

  -- A job that stands for an equal one by its window, and is nowhere any more, has succeeded: otherwise the window would be void.
  if fresh is not null and exists (select unnest(looked) except select unnest(places.ids) except select unnest(left_)) then
    stood := array(select d.job_id from jobwell.dedup d where d.job_id in (
      select unnest(looked) except select unnest(places.ids) except select unnest(left_)));
  end if;

  select array_agg(e.at) as at, array_agg(e.job) as job, array_agg(e.after) as after, array_agg(e.was) as was, array_agg(e.now) as now
    into edges from (
    select f.ctid as at, f.job, f.after, f.state as was,
           coalesce(p.state, case when f.job = any (fresh) and f.after = any (stood) then 'succeeded' else 'gone' end) as now
      from (select f.ctid, f.* from jobwell.follows f where f.after = any (left_)
            union
            select f.ctid, f.* from jobwell.follows f where f.job = any (fresh)) f
      left join unnest(places.ids, places.states) p(id, state) on p.id = f.after
   ) e where e.was <> e.now;
  if edges.at is null and fresh is null then
    return null;
  end if;
  update jobwell.follows f set state = e.now
    from unnest(edges.at, edges.now) e(at, now) where f.ctid = any (edges.at) and f.ctid = e.at;

  wait := array(select unnest(edges.job) union select unnest(fresh));
  if exists (select from unnest(edges.now) now where now in ('cancelled', 'discarded', 'gone')) then
    wait := array(select jobwell.followers_of(wait));  -- it may go on to them: all of them in one order, from the beginning
  end if;
  wait := array(select j.id from jobwell.jobs j where j.id = any (wait) and j.state = 'waiting' order by j.id for update);
  update jobwell.waits w set open = w.open - case when w.ended then d.ended else d.succeeded end
    from (select e.job, sum(jobwell.is_awaited(e.now, true)::integer - jobwell.is_awaited(e.was, true)::integer) as ended,
                 sum(jobwell.is_awaited(e.now, false)::integer - jobwell.is_awaited(e.was, false)::integer) as succeeded
            from unnest(edges.job, edges.was, edges.now) e(job, was, now) group by e.job) d
   where w.job = any (wait) and w.job = d.job;
  perform jobwell.cancel_followers(array(
    select w.job from jobwell.waits w join (
      select distinct e.job from unnest(edges.job, edges.now) e(job, now) where e.now in ('cancelled', 'discarded', 'gone')) e on e.job = w.job
     where w.job = any (wait) and not w.ended));
  queues := jobwell.release_followers(array(select w.job from jobwell.waits w where w.job = any (wait) and w.open <= 0));
  if queues is not null then
    perform jobwell.wake(queues);
  end if;
  return null;
end $$;

-- Jobs that wait, locked by the caller, for the success of one that has none any more. What follows them is noted by their leaving.
create or replace function jobwell.cancel_followers(p_ids uuid[]) returns void
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off
as $$
  with cause as materialized (
    select distinct on (f.job) f.job, f.after, f.state from jobwell.follows f
     where f.job = any (p_ids) and f.state in ('cancelled', 'discarded', 'gone') order by f.job, f.after),
  over as (
    delete from jobwell.jobs j where j.id = any (p_ids) and j.state = 'waiting' returning j.*)
  insert into jobwell.finished (id, finished_at, enqueued_at, run_at, started_at, worker, rank, attempt, failures, bytes,
                                queue, task, state, tenant, args, meta, note)
  select o.id, (select jobwell.now()), o.enqueued_at, o.run_at, o.started_at, o.worker, o.rank, o.attempt, o.failures, o.bytes,
         o.queue, o.task, 'cancelled', o.tenant, o.args, o.meta,
         'cancelled: it followed job ' || c.after || case c.state when 'cancelled' then ', which was cancelled'
           when 'discarded' then ', which had failed and was discarded' else ', which is not there any more' end
    from over o join cause c on c.job = o.id
$$;

-- Jobs that wait no longer, locked by the caller: ready, or scheduled where they were enqueued for later; deadline and delay count
-- from now on. Each is told how those that it followed have ended (core/follow.py). Returns the queues that have work.
create or replace function jobwell.release_followers(p_ids uuid[]) returns text[]
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off
as $$
  with n as materialized (select jobwell.now() as now),
  over as (
    delete from jobwell.waits w where w.job = any (p_ids) returning w.*),
  due as materialized (
    select o.job, n.now, greatest(n.now + make_interval(secs => coalesce(o.delay, 0)), o.run_at) as at, o.deadline from over o, n),
  counted as materialized (
    select f.job, count(*) filter (where f.state = 'succeeded') as succeeded, count(*) filter (where f.state in ('failed', 'discarded')) as failed,
           count(*) filter (where f.state in ('cancelled', 'gone')) as cancelled, (array_agg(f.after order by f.after))[1:50] as some
      from jobwell.follows f where f.job = any (p_ids) group by f.job),
  released as (
    update jobwell.jobs j
       set state = case when d.at <= d.now then 'ready' else 'scheduled' end, ready_at = case when d.at <= d.now then d.now end,
           run_at = d.at, deadline = d.at + make_interval(secs => d.deadline),
           meta = (coalesce(j.meta::jsonb, '{}') || jsonb_build_object('$followed', jsonb_build_object(
             'succeeded', c.succeeded, 'failed', c.failed, 'cancelled', c.cancelled, 'ids', to_jsonb(c.some))))::json
      from due d join counted c on c.job = d.job
     where j.id = any (p_ids) and j.id = d.job and j.state = 'waiting'
    returning j.queue, j.state)
  select array_agg(distinct r.queue) from released r where r.state = 'ready'
$$;

create or replace trigger linked_left after delete on jobwell.quarantine for each row execute function jobwell.linked_left();
-- `create or replace` would take its lock on a busy table each time.
do $$ begin
  if not exists (select from pg_trigger where tgrelid = 'jobwell.jobs'::regclass and tgname = 'linked_left') then
    create trigger linked_left after delete on jobwell.jobs for each row when (old.linked) execute function jobwell.linked_left();
  end if;
  if not exists (select from pg_trigger where tgrelid = 'jobwell.unsettled'::regclass and tgname = 'settle') then
    create constraint trigger settle after insert on jobwell.unsettled deferrable initially deferred
      for each row execute function jobwell.settle_followers();
  end if;
end $$;

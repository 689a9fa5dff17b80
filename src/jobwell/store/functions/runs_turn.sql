-- version: 1
-- Runs: what moves them on. Of one run one thing happens at a time here, under an advisory lock of the transaction: a lock on its
-- row would have to be written, and flushed at the commit, also by the many turns that find nothing to do. Each statement behind
-- the lock sees what was committed before it.

create or replace function jobwell.run_lock(p_run uuid) returns void
language sql volatile as $$ select pg_advisory_xact_lock(hashtextextended('jobwell.run:' || p_run, 0)) $$;

-- Enqueue the job of a preparation or a finish.
create or replace function jobwell.run_enqueue(p_run uuid, p_stage smallint) returns uuid
language plpgsql volatile as $$
declare
  now timestamptz := jobwell.now();
  job uuid;
begin
  insert into jobwell.jobs (id, queue, task, rank, gate, tenant, lock_key, bytes, args, meta, state, enqueued_at, run_at, ready_at, deadline)
  select jobwell.run_job_id(now), t.queue, t.task, t.rank, t.gate, r.tenant, '', octet_length(a.args), a.args::json, r.meta, 'ready', now, now, now,
         now + make_interval(secs => t.deadline)
    from jobwell.run_stages t join jobwell.runs r on r.id = t.run_id cross join lateral (select jobwell.run_args(p_run, p_stage, null) as args) a
   where t.run_id = p_run and t.stage = p_stage
  returning id into job;
  perform jobwell.wake(array[t.queue]) from jobwell.run_stages t where t.run_id = p_run and t.stage = p_stage;
  return job;
end $$;

-- Whether a preparation or a finish waits for just this job. One that has failed does again, if somebody has taken its job back from
-- the quarantine; with it the run goes on.
create or replace function jobwell.run_begin(p_run uuid, p_stage smallint, p_job uuid, p_claim uuid) returns boolean
language plpgsql volatile as $$
declare
  part jobwell.run_stages;
begin
  select t.* into part from jobwell.run_stages t join jobwell.runs r on r.id = t.run_id
   where t.run_id = p_run and t.stage = p_stage and t.job_id = p_job and t.state in ('enqueued', 'failed') and not r.cancelled;
  if not found or part.state = 'enqueued' then
    return found;
  end if;
  perform jobwell.run_lock(p_run);
  perform from jobwell.jobs j where j.id = p_job and j.claim_id = p_claim for no key update;
  if not found then
    return false;
  end if;
  update jobwell.run_stages t set state = 'enqueued', message = null, ended_at = null
   where t.run_id = p_run and t.stage = p_stage and t.job_id = p_job and t.state = 'failed';
  if not found then
    return false;
  end if;
  update jobwell.runs r
     set active = true, ended_at = null, moved_at = jobwell.now(),
         state = case when r.state = 'paused' and (part.kind = 'finish' or r.changed_by <> 'jobwell') then r.state
                      when r.started_at is null then 'queued' else 'running' end
   where r.id = p_run;
  return true;
end $$;

-- Lots become jobs, as long as the stage has room. Small lots are put together. Returns the items.
create or replace function jobwell.run_feed(p_run uuid, p_stage smallint, p_chunk integer, p_room bigint) returns bigint
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  p     record;
  now   timestamptz := jobwell.now();
  front text := '{"bulk_run":"' || p_run || '","stage":' || p_stage || ',"spans":[[';
  hex   text := lpad(to_hex((extract(epoch from now) * 1000)::bigint), 12, '0');
  fed   bigint;
begin
  select t.task, t.queue, t.rank, t.gate, t.deadline, r.tenant, r.meta into p
    from jobwell.run_stages t join jobwell.runs r on r.id = t.run_id where t.run_id = p_run and t.stage = p_stage;
  -- Ids that sort by time, as those that producers make, and within the feed by the items.
  hex := left(hex, 8) || '-' || right(hex, 4) || '-7';
  if p_chunk = 0 then
    with next as materialized (
      select l.id, l.n from jobwell.run_lots l
       where l.run_id = p_run and l.stage = p_stage and not l.held and l.ready_at <= now order by l.ready_at, l.id limit 500),
    took as (
      delete from jobwell.run_lots l
       where l.id = any (array(select f.id from (select n.id, sum(n.n) over (order by n.id) - n.n as before from next n) f where f.before < p_room))
      returning l.nos),
    put as (
      insert into jobwell.jobs (id, queue, task, rank, gate, tenant, lock_key, bytes, args, meta, state, enqueued_at, run_at, ready_at, deadline)
      select (hex || lpad(to_hex(row_number() over () % 4096), 3, '0') || substr(gen_random_uuid()::text, 19))::uuid, p.queue, p.task, p.rank, p.gate, p.tenant, '', octet_length(a.args), a.args::json,
             p.meta, 'ready', now, now, now, now + make_interval(secs => p.deadline)
        from took t cross join unnest(t.nos) u(no) cross join lateral (select front || u.no || ',' || u.no || ']]}' as args offset 0) a
      returning 1)
    select count(*) into fed from put;
  else
    with next as materialized (
      select l.id, l.n from jobwell.run_lots l
       where l.run_id = p_run and l.stage = p_stage and not l.held and l.ready_at <= now order by l.ready_at, l.id limit 500),
    took as (
      delete from jobwell.run_lots l
       where l.id = any (array(select f.id from (select n.id, sum(n.n) over (order by n.id) - n.n as before from next n) f where f.before < p_room))
      returning l.nos),
    packed as (
      select e.lot, array_agg(e.no) as nos, count(*) as n
        from (select u.no, (row_number() over (order by u.no) - 1) / p_chunk as lot from took t cross join unnest(t.nos) u(no)) e group by e.lot),
    made as materialized (
      select (hex || lpad(to_hex(k.lot % 4096), 3, '0') || substr(gen_random_uuid()::text, 19))::uuid as id,
             jobwell.run_args(p_run, p_stage, k.nos) as args, k.n
        from packed k),
    apart as (
      insert into jobwell.payloads (id, args) select m.id, m.args::json from made m where octet_length(m.args) > 2048),
    put as (
      insert into jobwell.jobs (id, queue, task, rank, gate, tenant, lock_key, bytes, args, meta, state, enqueued_at, run_at, ready_at, deadline)
      select m.id, p.queue, p.task, p.rank, p.gate, p.tenant, '', octet_length(m.args), case when octet_length(m.args) <= 2048 then m.args::json end,
             p.meta, 'ready', now, now, now, now + make_interval(secs => p.deadline)
        from made m)
    select sum(m.n) into fed from made m;
  end if;
  if fed > 0 then
    insert into jobwell.run_counts as c (run_id, stage, shard, out) values (p_run, p_stage, jobwell.run_shard(), fed)
    on conflict (run_id, stage, shard) do update set out = c.out + excluded.out;
    perform jobwell.wake(array[p.queue]);
  end if;
  return coalesce(fed, 0);
end $$;

-- Some of the lots of a cancelled run. Returns how many there were.
create or replace function jobwell.run_cancel_lots(p_run uuid, p_limit integer) returns bigint
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  gone bigint;
begin
  with took as (
    delete from jobwell.run_lots l where l.id = any (array(select n.id from jobwell.run_lots n where n.run_id = p_run limit p_limit))
    returning l.stage, l.nos),
  kept as (
    insert into jobwell.run_states as s (run_id, stage, no, state, attempt, tries, at)
    select p_run, t.stage, u.no, 'cancelled', 0, 0, jobwell.now() from took t, unnest(t.nos) u(no) order by t.stage, u.no
    on conflict (run_id, stage, no) do update set state = 'cancelled', at = excluded.at where s.state = 'open'
    returning s.stage),
  counted as (
    insert into jobwell.run_counts as c (run_id, stage, shard, cancelled)
    select p_run, k.stage, jobwell.run_shard(), count(*) from kept k group by k.stage order by k.stage
    on conflict (run_id, stage, shard) do update set cancelled = c.cancelled + excluded.cancelled)
  select count(*) into gone from took;
  return gone;
end $$;

-- The waiting jobs of a cancelled run, with the items that they hold. Those that run see it themselves.
create or replace function jobwell.run_cancel_jobs(p_run uuid, p_actor text, p_why text, p_limit integer) returns bigint
language plpgsql volatile
set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  ids  uuid[];
  over uuid[];
begin
  ids := array(
    select j.id from jobwell.jobs j
     where j.task = any (array(select t.task from jobwell.run_stages t where t.run_id = p_run)) and j.state <> 'running'
       and coalesce(j.args, (select p.args from jobwell.payloads p where p.id = j.id)) ->> 'bulk_run' = p_run::text
     limit p_limit for update skip locked);
  over := array(select c.id from jobwell.cancel(ids, p_actor, p_why) c where c.outcome = 'cancelled');
  with held as (
    select f.args from jobwell.finished f where f.id = any (over) and f.args is not null
    union all select p.args from jobwell.payloads p where p.id = any (over)),
  kept as (
    insert into jobwell.run_states as s (run_id, stage, no, state, attempt, tries, at)
    select p_run, n.stage, n.no, 'cancelled', 0, 0, jobwell.now()
      from (select distinct (h.args ->> 'stage')::smallint as stage, u.no from held h, jobwell.run_nos(h.args) u(no)
             where exists (select from jobwell.run_items i where i.run_id = p_run and i.no = u.no)) n
     order by n.stage, n.no
    on conflict (run_id, stage, no) do update set state = 'cancelled', at = excluded.at where s.state = 'open'
    returning s.stage)
  insert into jobwell.run_counts as c (run_id, stage, shard, out, cancelled)
  select p_run, k.stage, jobwell.run_shard(), -count(*), count(*) from kept k group by k.stage order by k.stage
  on conflict (run_id, stage, shard) do update set out = c.out + excluded.out, cancelled = c.cancelled + excluded.cancelled;
  update jobwell.run_stages t set state = 'failed', message = 'cancelled', ended_at = jobwell.now()
   where t.run_id = p_run and t.kind <> 'items' and t.state = 'enqueued' and t.job_id = any (over);
  return cardinality(ids);
end $$;

-- Look at a run and do what is to be done: feed its stages, end them, enqueue what finishes them, end it. Anybody may call it at any
-- time and as often as they like. Returns whether it should be called again at once.
create or replace function jobwell.run_turn(p_run uuid) returns boolean
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  r     jobwell.runs;
  s     record;
  now   timestamptz;
  fed   bigint := 0;
  total bigint;
  ended bigint := 0;
  waits boolean := false;      -- something is open, or will come
  flaw  boolean := false;      -- something has failed
  gone  boolean := false;      -- something was cancelled
  more  boolean := false;
  said  text;
  ready smallint[] := '{}';    -- stages without an open item
  clean smallint[] := '{}';    -- of these, with their forerunners, those in which all is done or skipped
begin
  perform jobwell.run_lock(p_run);
  select * into r from jobwell.runs x where x.id = p_run;
  if not found or not r.active then
    return false;
  end if;
  now := jobwell.now();
  if r.cancelled then
    more := jobwell.run_cancel_lots(p_run, 40) = 40;
  end if;
  for s in
    select t.stage, t.after, t.chunk, t.room, t.state, t.mark, t.mark_at, t.speed, c.*, p.done as come,
           exists (select from jobwell.run_lots l where l.run_id = p_run and l.stage = t.stage and not l.held) as lots
      from jobwell.run_stages t cross join lateral (
        select coalesce(sum(x.out), 0) as out, coalesce(sum(x.done), 0) as done, coalesce(sum(x.failed), 0) as failed,
               coalesce(sum(x.skipped), 0) as skipped, coalesce(sum(x.cancelled), 0) as cancelled
          from jobwell.run_counts x where x.run_id = p_run and x.stage = t.stage) c cross join lateral (
        select coalesce(sum(x.done), 0) as done from jobwell.run_counts x where x.run_id = p_run and x.stage = t.after) p
     where t.run_id = p_run and t.kind = 'items' order by t.stage
  loop
    if r.state in ('queued', 'running') and not r.cancelled and s.out < s.room and s.lots then
      fed := fed + jobwell.run_feed(p_run, s.stage, s.chunk, s.room - s.out::bigint);
    end if;
    total := s.done + s.failed + s.skipped + s.cancelled;
    ended := ended + total;
    flaw := flaw or s.failed > 0;
    gone := gone or s.cancelled > 0;
    if now > s.mark_at + interval '5 seconds' and total <> s.mark then
      update jobwell.run_stages t
         set mark_at = now, mark = total,
             speed = case when total > s.mark
                          then (total - s.mark) / extract(epoch from now - s.mark_at) * 0.5 + coalesce(s.speed, (total - s.mark) / extract(epoch from now - s.mark_at)) * 0.5 end
       where t.run_id = p_run and t.stage = s.stage;
    end if;
    if r.sealed and s.out = 0 and (case when s.after is null then total = r.items else s.after = any (ready) and total = s.come end) then
      ready := ready || s.stage;
      if s.failed + s.cancelled = 0 and (s.after is null or s.after = any (clean)) then
        clean := clean || s.stage;
      end if;
      update jobwell.run_stages t set state = 'ended', ended_at = now where t.run_id = p_run and t.stage = s.stage and t.state = 'open';
    else
      waits := true;
    end if;
  end loop;
  if r.held and r.sealed and waits and fed = 0 and r.state in ('queued', 'running') and not r.cancelled
     and not exists (select from jobwell.run_lots l where l.run_id = p_run and not l.held)
     and not exists (select from jobwell.run_counts c where c.run_id = p_run having sum(c.out) <> 0) then
    update jobwell.runs x
       set state = 'paused', changed_by = 'jobwell',
           why = case when r.started_at is null then 'the canary matches 0 of ' || r.items || ' items; nothing has run' else 'the canary is over' end
     where x.id = p_run and x.state = r.state and not x.cancelled;
    return false;
  end if;
  select t.message into said from jobwell.run_stages t where t.run_id = p_run and t.kind = 'prepare' and t.state = 'failed';
  if found and not r.sealed and r.state in ('queued', 'running') and not r.cancelled then
    update jobwell.runs x set state = 'paused', changed_by = 'jobwell', why = 'the preparation failed: ' || said
     where x.id = p_run and x.state = r.state and not x.cancelled;
    return false;
  end if;
  -- What finishes a stage, or all of them: enqueued once, by the change of its state.
  if r.state in ('queued', 'running') and not r.cancelled then
    for s in
      select t.stage from jobwell.run_stages t
       where t.run_id = p_run and t.kind = 'finish' and t.state = 'waiting'
         and case when t.after is null then not waits else t.after = any (ready) end
         and (t.condition = 'any' or (case when t.after is null then not flaw and not gone else t.after = any (clean) end))
       order by t.stage for no key update
    loop
      update jobwell.run_stages t set state = 'enqueued', job_id = jobwell.run_enqueue(p_run, s.stage), message = null
       where t.run_id = p_run and t.stage = s.stage and t.state = 'waiting';
      fed := fed + 1;
    end loop;
  end if;
  select waits or coalesce(bool_or(t.state = 'enqueued'), false), flaw or coalesce(bool_or(t.state = 'failed'), false)
    into waits, flaw from jobwell.run_stages t where t.run_id = p_run and t.kind <> 'items';
  if not waits and r.state <> 'paused' and r.sealed or (r.cancelled and not more and ended = (select coalesce(sum(c.done + c.failed + c.skipped + c.cancelled), 0) from jobwell.run_counts c where c.run_id = p_run)
      and not exists (select from jobwell.run_lots l where l.run_id = p_run)
      and not exists (select from jobwell.run_counts c where c.run_id = p_run having sum(c.out) <> 0)
      and not exists (select from jobwell.run_stages t where t.run_id = p_run and t.state = 'enqueued')) then
    update jobwell.runs x
       set state = case when r.cancelled or gone then 'cancelled' when flaw then 'completed_with_errors' else 'completed' end,
           active = false, ended_at = coalesce(x.ended_at, now), moved = ended, moved_at = now
     where x.id = p_run and x.state = r.state and x.cancelled = r.cancelled;
  elsif (fed > 0 and r.state = 'queued') or ended <> r.moved then
    update jobwell.runs x
       set state = case when x.state = 'queued' and (fed > 0 or ended > 0) then 'running' else x.state end,
           started_at = case when fed > 0 then coalesce(x.started_at, now) else x.started_at end, moved = ended, moved_at = now
     where x.id = p_run;
  end if;
  return more;
end $$;

-- No more items come. What was held for that is let go; with a canary, only what belongs to it.
create or replace function jobwell.run_seal(p_run uuid) returns text
language plpgsql volatile
set jit = off
as $$
declare
  r jobwell.runs;
  s record;
begin
  perform jobwell.run_lock(p_run);
  select * into r from jobwell.runs x where x.id = p_run for no key update;  -- against a block of items that is coming in
  if not found or r.sealed or r.cancelled then
    return coalesce(r.state, '');
  end if;
  r.bad := greatest(r.bad, (select count(distinct b.row) from jobwell.run_bad_rows b where b.run_id = p_run));
  if r.on_bad = 'stop' and r.bad > 0 then
    delete from jobwell.run_lots l where l.run_id = p_run;
    update jobwell.runs x
       set bad = r.bad, state = 'cancelled', refused = true, cancelled = true, active = false, ended_at = jobwell.now(), changed_by = 'jobwell',
           why = case when r.bad = 1 then 'one row does not fit' else r.bad || ' rows do not fit' end || '; nothing was done'
     where x.id = p_run;
    return 'cancelled';
  end if;
  update jobwell.runs x set sealed = true, bad = r.bad where x.id = p_run;
  if r.canary is null then
    update jobwell.run_lots l set held = false where l.run_id = p_run and l.held;
    return r.state;
  end if;
  delete from jobwell.run_lots l where l.run_id = p_run;
  for s in select t.stage, coalesce(nullif(t.chunk, 0), 100) as size from jobwell.run_stages t
            where t.run_id = p_run and t.kind = 'items' and t.after is null loop
    insert into jobwell.run_lots (run_id, stage, held, n, nos)
    select p_run, s.stage, not q.first, count(*), array_agg(q.no order by q.no)
      from (select p.no, p.first, (row_number() over (partition by p.first order by p.no) - 1) / s.size as piece
              from (select i.no, case when r.canary ? 'only' then i.data @> (r.canary -> 'only')
                                      else row_number() over (order by i.no) <= coalesce((r.canary ->> 'count')::bigint, ceil((r.canary ->> 'share')::numeric * r.items)) end as first
                      from jobwell.run_items i where i.run_id = p_run) p) q
     group by q.first, q.piece order by min(q.no);
  end loop;
  update jobwell.runs x set held = exists (select from jobwell.run_lots l where l.run_id = p_run and l.held) where x.id = p_run;
  return r.state;
end $$;

-- Which failed items a retry means.
create or replace function jobwell.run_failed(p_run uuid, p_stage text, p_code text, p_keys text[]) returns table (stage smallint, no bigint)
language sql stable as $$
  select s.stage, s.no from jobwell.run_states s join jobwell.run_stages t on t.run_id = s.run_id and t.stage = s.stage
   where s.run_id = p_run and s.state = 'failed' and (p_stage is null or t.name = p_stage) and (p_code is null or s.code = p_code)
     and (p_keys is null or s.no in (select i.no from jobwell.run_items i where i.run_id = p_run and i.key = any (p_keys)))
$$;

-- What is open again waits in a lot, so no job that held it may find it: neither one that is tried again, nor one that somebody takes
-- back from the quarantine.
create or replace function jobwell.run_cut(p_run uuid, p_stages smallint[], p_nos bigint[]) returns void
language plpgsql volatile
set jit = off
as $$
declare
  tasks text[] := array(select t.task from jobwell.run_stages t where t.run_id = p_run and t.kind = 'items');
  place text;
begin
  foreach place in array array['quarantine', 'jobs'] loop  -- in this order: what is taken back meanwhile is found as a job
    with again as materialized (select g.stage, g.no from unnest(p_stages, p_nos) g(stage, no)),
    mine as materialized (
      select j.id, (j.args ->> 'stage')::smallint as stage, j.args
        from (select x.id, coalesce(x.args, (select p.args from jobwell.payloads p where p.id = x.id)) as args
                from (select q.id, q.args from jobwell.quarantine q where place = 'quarantine' and q.task = any (tasks)
                      union all select q.id, q.args from jobwell.jobs q where place = 'jobs' and q.task = any (tasks)) x) j
       where j.args ->> 'bulk_run' = p_run::text and json_typeof(j.args -> 'spans') = 'array'),
    cut as materialized (
      select m.id, jobwell.run_args(p_run, m.stage, coalesce(array_agg(n.no) filter (where a.no is null), '{}')) as args
        from mine m cross join jobwell.run_nos(m.args) n(no) left join again a on a.stage = m.stage and a.no = n.no
       group by m.id, m.stage having count(a.no) > 0),
    failed as (
      update jobwell.quarantine q set args = c.args::json, bytes = octet_length(c.args)
        from cut c where place = 'quarantine' and q.id = c.id and q.args is not null),
    live as (
      update jobwell.jobs q set args = c.args::json, bytes = octet_length(c.args)
        from cut c where place = 'jobs' and q.id = c.id and q.args is not null)
    update jobwell.payloads p set args = c.args::json from cut c where p.id = c.id;
  end loop;
end $$;

-- Failed items are open again, in the same run: exactly those. A second call finds none. A run that was cancelled while its items came
-- takes no more of them: it is sealed.
create or replace function jobwell.run_retry(p_run uuid, p_stage text, p_code text, p_keys text[], p_actor text, p_why text) returns bigint
language plpgsql volatile
set jit = off
as $$
declare
  r     jobwell.runs;
  again bigint;
  parts bigint := 0;
  stages smallint[];
  nos   bigint[];
begin
  perform jobwell.run_lock(p_run);
  select * into r from jobwell.runs x where x.id = p_run for no key update;
  if not found or r.refused or (r.cancelled and r.active) then
    return -1;
  end if;
  if exists (select from jobwell.run_failed(p_run, p_stage, p_code, p_keys)) then
    -- What is recorded of its jobs meanwhile comes before this, or after it.
    perform from jobwell.jobs j
      where j.task = any (array(select t.task from jobwell.run_stages t where t.run_id = p_run and t.kind = 'items'))
        and coalesce(j.args, (select p.args from jobwell.payloads p where p.id = j.id)) ->> 'bulk_run' = p_run::text
      order by j.id for no key update;
  end if;
  with opened as (
    update jobwell.run_states s set state = 'open', tries = 0
      from jobwell.run_failed(p_run, p_stage, p_code, p_keys) f
     where s.run_id = p_run and s.stage = f.stage and s.no = f.no and s.state = 'failed'
    returning s.stage, s.no),
  lots as (
    insert into jobwell.run_lots (run_id, stage, n, nos)
    select p_run, q.stage, count(*), array_agg(q.no order by q.no)
      from (select o.stage, o.no, (row_number() over (partition by o.stage order by o.no) - 1) / coalesce(nullif(t.chunk, 0), 100) as piece
              from opened o join jobwell.run_stages t on t.run_id = p_run and t.stage = o.stage) q
     group by q.stage, q.piece),
  counted as (
    insert into jobwell.run_counts as c (run_id, stage, shard, failed)
    select p_run, o.stage, jobwell.run_shard(), -count(*) from opened o group by o.stage order by o.stage
    on conflict (run_id, stage, shard) do update set failed = c.failed + excluded.failed)
  select count(*), array_agg(o.stage), array_agg(o.no) into again, stages, nos from opened o;
  if again > 0 then
    perform jobwell.run_cut(p_run, stages, nos);
  end if;
  if p_stage is null and p_code is null and p_keys is null then
    update jobwell.run_stages t set state = 'waiting', job_id = null where t.run_id = p_run and t.kind = 'finish' and t.state = 'failed';
    get diagnostics parts = row_count;
  end if;
  if again + parts > 0 then
    update jobwell.run_stages t set state = 'open', ended_at = null where t.run_id = p_run and t.kind = 'items' and t.state = 'ended';
    update jobwell.runs x
       set state = case when x.state in ('paused', 'queued') then x.state else 'running' end, sealed = x.sealed or x.cancelled, cancelled = false,
           active = true, ended_at = null,
           changed_by = p_actor, why = p_why
     where x.id = p_run;
  end if;
  return again;
end $$;

-- The net: open items that have come to a stage and are in no lot and in no live job wait in a lot again, and the count of items in
-- jobs is set right. For runs that do not move; normally there is nothing to do. Returns how many there were.
create or replace function jobwell.run_rescue(p_run uuid) returns bigint
language plpgsql volatile
set jit = off
as $$
declare
  r     jobwell.runs;
  lost_items bigint;
begin
  perform jobwell.run_lock(p_run);
  select * into r from jobwell.runs x where x.id = p_run;
  if not found or not r.active then
    return 0;
  end if;
  update jobwell.runs x set moved_at = jobwell.now() where x.id = p_run;
  -- First the cheap look: all that jobs are said to hold is held by live ones.
  if not exists (
    with mine as materialized (
      select (j.args ->> 'stage')::smallint as stage, j.args
        from (select coalesce(x.args, (select p.args from jobwell.payloads p where p.id = x.id)) as args from jobwell.jobs x
               where x.task = any (array(select t.task from jobwell.run_stages t where t.run_id = p_run))) j
       where j.args ->> 'bulk_run' = p_run::text and j.args -> 'spans' is not null),
    held as (
      select m.stage, count(distinct u.no) as n from mine m cross join jobwell.run_nos(m.args) u(no)
       where exists (select from jobwell.run_items i where i.run_id = p_run and i.no = u.no)
         and not exists (select from jobwell.run_states s where s.run_id = p_run and s.stage = m.stage and s.no = u.no and s.state <> 'open')
       group by m.stage),
    said as (select c.stage, sum(c.out) as n from jobwell.run_counts c where c.run_id = p_run group by c.stage)
    select from said full join held using (stage) where coalesce(said.n, 0) <> coalesce(held.n, 0))
    and not exists (select from jobwell.run_stages t where t.run_id = p_run and t.kind <> 'items' and t.state = 'enqueued'
                      and not exists (select from jobwell.jobs j where j.id = t.job_id))
  then
    return 0;
  end if;
  with jobs as materialized (
    select j.id, coalesce(j.args, (select p.args from jobwell.payloads p where p.id = j.id)) as args from jobwell.jobs j
     where j.task = any (array(select t.task from jobwell.run_stages t where t.run_id = p_run))),
  mine as materialized (
    select j.id, (j.args ->> 'stage')::smallint as stage, j.args from jobs j where j.args ->> 'bulk_run' = p_run::text),
  open as materialized (
    select t.stage, i.no from jobwell.run_stages t join jobwell.run_items i on i.run_id = p_run
      left join jobwell.run_states s on s.run_id = p_run and s.stage = t.stage and s.no = i.no
      left join jobwell.run_states f on f.run_id = p_run and f.stage = t.after and f.no = i.no and f.state = 'done'
     where t.run_id = p_run and t.kind = 'items' and (s.state is null or s.state = 'open') and (t.after is null or f.no is not null)),
  held as materialized (
    select distinct m.stage, u.no from mine m, jobwell.run_nos(m.args) u(no) where m.args -> 'spans' is not null),
  lots as materialized (
    select l.stage, u.no from jobwell.run_lots l, unnest(l.nos) u(no) where l.run_id = p_run),
  lost as materialized (
    select o.stage, o.no from open o except select h.stage, h.no from held h except select l.stage, l.no from lots l),
  put as (
    insert into jobwell.run_lots (run_id, stage, held, n, nos)
    select p_run, q.stage, not r.sealed and r.on_bad = 'stop', count(*), array_agg(q.no order by q.no)
      from (select l.stage, l.no, (row_number() over (partition by l.stage order by l.no) - 1) / coalesce(nullif(t.chunk, 0), 100) as piece
              from lost l join jobwell.run_stages t on t.run_id = p_run and t.stage = l.stage) q
     group by q.stage, q.piece),
  counted as (
    insert into jobwell.run_counts as c (run_id, stage, shard, out)
    select p_run, t.stage, jobwell.run_shard(), coalesce(n.n, 0) - coalesce(o.out, 0) from jobwell.run_stages t
      left join (select h.stage, count(*) as n from held h join open o on o.stage = h.stage and o.no = h.no group by h.stage) n on n.stage = t.stage
      left join (select c.stage, sum(c.out) as out from jobwell.run_counts c where c.run_id = p_run group by c.stage) o on o.stage = t.stage
     where t.run_id = p_run and t.kind = 'items' and coalesce(n.n, 0) <> coalesce(o.out, 0) order by t.stage
    on conflict (run_id, stage, shard) do update set out = c.out + excluded.out),
  parts as (
    update jobwell.run_stages t set state = 'failed', message = 'its job is gone', ended_at = jobwell.now()
     where t.run_id = p_run and t.kind <> 'items' and t.state = 'enqueued' and not exists (select from jobwell.jobs j where j.id = t.job_id))
  select count(*) into lost_items from lost;
  return lost_items;
end $$;

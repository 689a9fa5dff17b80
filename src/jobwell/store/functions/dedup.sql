-- version: 1
-- Equal jobs (docs/dedup.md): who holds a key, and an enqueue that makes no second job.

-- Whether a job that does not live any more has left its work undone: it failed for good, or was cancelled or given up.
create or replace function jobwell.dedup_void(p_job uuid) returns boolean
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select not exists (select from jobwell.jobs j where j.id = p_job)
     and (exists (select from jobwell.quarantine q where q.id = p_job)
          or exists (select from jobwell.finished f where f.id = p_job and f.state <> 'succeeded'))
$$;

-- Who holds these keys now: a live job; or, with p_windows, a window that is not over. A window is void when its job is.
create or replace function jobwell.dedup_holders(p_keys text[], p_windows boolean)
returns table (key text, id uuid, task text, state text, since timestamptz, until timestamptz)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
begin
  if p_windows then
    return query
    select d.key, d.job_id, d.task, coalesce(j.state, 'over'), d.since, d.until
      from jobwell.dedup d left join jobwell.jobs j on j.id = d.job_id
     where d.key = any (p_keys) and d.until > (select jobwell.now()) and (j.id is not null or not jobwell.dedup_void(d.job_id));
  else
    return query
    select j.dedup_key, j.id, j.task, j.state, j.enqueued_at, null::timestamptz from jobwell.jobs j
     where j.dedup in ('done', 'started') and j.dedup_key = any (p_keys);
  end if;
end $$;

-- Enqueue jobs that have keys, no two of them the same one, as far as nobody holds the key. Returns the keys that are theirs.
--
-- The insert waits for whoever has put in the same key in a transaction that is still open: nobody is told of a job that then
-- vanishes. Keys are taken in order, so that two calls do not wait for each other in a circle.
create or replace function jobwell.dedup_add(p_given json, p_meta json, p_inline integer) returns setof text
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
#variable_conflict use_column
declare
  now timestamptz := jobwell.now();
  got text[];
  woken text[];
begin
  with given as materialized (
    select g.*, coalesce(g.run_at, now + make_interval(secs => g.delay)) as due
      from json_to_recordset(p_given) as g(key text, until text, span float8, id uuid, queue text, task text, rank smallint, gate bigint,
        tenant text, lock_key text, bytes integer, args text, run_at timestamptz, delay float8, deadline float8)),
  opened as (
    insert into jobwell.dedup (key, job_id, task, since, until)
    select g.key, g.id, g.task, now, now + make_interval(secs => g.span) from given g where g.until = 'window' order by g.key
    on conflict (key) do nothing
    returning key),
  -- Windows that are over, or void. One that another takes over meanwhile is looked at again when it is ours to change.
  over as materialized (
    select d.key from jobwell.dedup d
     where d.key = any (array(select g.key from given g where g.until = 'window')) and (d.until <= now or jobwell.dedup_void(d.job_id))
     order by d.key for update),
  taken as (
    update jobwell.dedup d set job_id = g.id, task = g.task, since = now, until = now + make_interval(secs => g.span)
      from given g where d.key = any (array(select o.key from over o)) and g.key = d.key
    returning d.key),
  added as (
    insert into jobwell.jobs (id, queue, task, rank, gate, tenant, lock_key, bytes, args, meta, state, enqueued_at, run_at, ready_at, deadline,
                              dedup_key, dedup, dedup_window)
    select g.id, g.queue, g.task, g.rank, g.gate, g.tenant, g.lock_key, g.bytes, case when g.bytes <= p_inline then g.args::json end, p_meta,
           case when g.due <= now then 'ready' else 'scheduled' end, now, g.due, case when g.due <= now then jobwell.now() end,
           greatest(now, g.due) + make_interval(secs => g.deadline), g.key, g.until, g.span
      from given g
     where g.until <> 'window' or g.key in (select o.key from opened o) or g.key in (select t.key from taken t)
     order by g.key
    on conflict (dedup_key) where dedup in ('done', 'started') do nothing
    returning id, dedup_key, queue, state),
  apart as (
    insert into jobwell.payloads (id, args)
    select g.id, g.args::json from given g where g.bytes > p_inline and g.id in (select a.id from added a))
  select array_agg(a.dedup_key), array_agg(distinct a.queue) filter (where a.state = 'ready') into got, woken from added a;
  if woken is not null then
    perform jobwell.wake(woken);
  end if;
  return query select k from unnest(got) k;
end $$;

-- What becomes of a call whose key is held. p_given has one row for each call, several for a key where one call gave it several
-- times; the last of them counts. A holder that has not begun is changed where the task says so; one that has begun stays as it
-- is. Each is counted. Returns for each key its holder, and what came of it; no row: nobody holds it any more.
create or replace function jobwell.dedup_suppress(p_given json, p_meta json, p_inline integer)
returns table (key text, id uuid, task text, state text, outcome text)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
#variable_conflict use_column
declare
  now timestamptz := jobwell.now();
  held text[];
  holders uuid[];
  tasks text[];
  states text[];
  outcomes text[];
  changes boolean;
  slides boolean;
  woken text[];
begin
  select array_agg(h.key), array_agg(h.id), array_agg(h.task), array_agg(h.state), array_agg(''::text)
    into held, holders, tasks, states, outcomes
    from (select * from jobwell.dedup_holders(array(select g ->> 'key' from json_array_elements(p_given) g where g ->> 'until' <> 'window'), false)
          union all
          select * from jobwell.dedup_holders(array(select g ->> 'key' from json_array_elements(p_given) g where g ->> 'until' = 'window'), true)) h;
  if held is null then
    return;
  end if;
  select bool_or(g ->> 'conflict' in ('replace', 'debounce')), bool_or((g ->> 'slides')::boolean) into changes, slides
    from json_array_elements(p_given) g;
  if slides then
    with given as materialized (
      select distinct on (g.key) g.key, g.span from json_to_recordset(p_given) as g(key text, span float8, slides boolean) where g.slides),
    mine as materialized (
      select d.key from jobwell.dedup d join unnest(held, holders) h(key, id) on h.key = d.key and h.id = d.job_id
       where d.key = any (array(select g.key from given g)) order by d.key for update of d)
    update jobwell.dedup d set until = greatest(d.until, now + make_interval(secs => g.span))
      from given g where d.key = any (array(select m.key from mine m)) and g.key = d.key;
  end if;
  if changes then
    with given as materialized (
      select distinct on (g.key) g.* from (
        select r.*, row_number() over () as n
          from json_to_recordset(p_given) as r(key text, conflict text, wait float8, longest float8, queue text, task text, rank smallint, gate bigint,
            tenant text, lock_key text, bytes integer, args text, run_at timestamptz, delay float8, deadline float8)
         where r.conflict in ('replace', 'debounce')) g
       order by g.key, g.n desc),
    waiting as materialized (
      select j.id, j.dedup_key, j.enqueued_at, j.run_at from jobwell.jobs j
       where j.id = any (holders) and j.dedup_key = any (array(select g.key from given g)) and j.dedup in ('done', 'started', 'window')
         and j.state in ('ready', 'scheduled') and j.attempt = 0 and j.postponements = 0
       order by j.dedup_key for update),
    timed as materialized (
      select g.*, w.id,
             case when g.conflict = 'debounce'
                  then greatest(w.run_at, least(now + make_interval(secs => g.wait), w.enqueued_at + make_interval(secs => g.longest)))
                  else coalesce(g.run_at, now + make_interval(secs => g.delay)) end as due
        from waiting w join given g on g.key = w.dedup_key),
    changed as (
      update jobwell.jobs j
         set queue = t.queue, gate = t.gate, rank = t.rank, tenant = t.tenant, lock_key = t.lock_key, bytes = t.bytes, meta = p_meta,
             args = case when t.bytes <= p_inline then t.args::json end, run_at = t.due, deadline = greatest(now, t.due) + make_interval(secs => t.deadline),
             state = case when t.due <= now then 'ready' else 'scheduled' end,
             ready_at = case when t.due <= now then coalesce(j.ready_at, jobwell.now()) end
        from timed t where j.id = any (array(select x.id from timed x)) and j.id = t.id and j.task = t.task
      returning j.id, j.dedup_key, j.queue, j.state, t.conflict),
    apart as (
      insert into jobwell.payloads as p (id, args) select t.id, t.args::json from timed t join changed c on c.id = t.id where t.bytes > p_inline
      on conflict (id) do update set args = excluded.args),
    inline as (
      delete from jobwell.payloads p using timed t where p.id = any (array(select c.id from changed c)) and p.id = t.id and t.bytes <= p_inline)
    select array_agg(coalesce(c.state, h.state) order by h.n), array_agg(case c.conflict when 'replace' then 'replaced' when 'debounce' then 'debounced' else '' end order by h.n),
           array_agg(distinct c.queue) filter (where c.state = 'ready')
      into states, outcomes, woken
      from unnest(held, states) with ordinality h(key, state, n) left join changed c on c.dedup_key = h.key;
    if woken is not null then
      perform jobwell.wake(woken);
    end if;
    -- One that was to be changed and has begun, or ended, since it was looked at: looked at once more, and not taken for waiting.
    if exists (select from unnest(states, outcomes) x(state, outcome) where x.outcome = '' and x.state in ('ready', 'scheduled')) then
      select array_agg(h.key), array_agg(h.id), array_agg(h.task), array_agg(h.state), array_agg(h.outcome) into held, holders, tasks, states, outcomes
        from (
          select o.key, o.id, o.task, coalesce(n.state, o.state) as state, o.outcome
            from unnest(held, holders, tasks, states, outcomes) o(key, id, task, state, outcome)
            left join (select * from jobwell.dedup_holders(held, false) union all select * from jobwell.dedup_holders(held, true)) n
              on n.key = o.key and n.id = o.id
           where o.outcome <> '' or n.id is not null) h;
      if held is null then
        return;
      end if;
    end if;
  end if;
  return query
  with given as materialized (
    select g.* from json_to_recordset(p_given) as g(key text, conflict text, task text, tenant text) where g.key in (select unnest(held))),
  told as materialized (
    select h.key, h.id, h.task, h.state,
           case when h.outcome <> '' then h.outcome when (select bool_or(g.conflict = 'reject') from given g where g.key = h.key) then 'rejected' else 'skipped' end as outcome
      from unnest(held, holders, tasks, states, outcomes) h(key, id, task, state, outcome)),
  counted as (
    insert into jobwell.dedup_hits (at, task, key, reason, holder, state, tenant)
    select now, g.task, g.key, t.outcome, t.id, t.state, g.tenant from given g join told t on t.key = g.key)
  select t.key, t.id, t.task, t.state, t.outcome from told t;
end $$;

-- Failed jobs that have keys, back to ready: each as a new enqueue, that takes the key or is refused. Returns those that went back, and
-- with a pace the moment after each. A key that somebody has just put in, in a transaction that is open, is not waited for: a worker
-- may be the one who does this, and no caller's transaction may hold it up.
create or replace function jobwell.retry_keyed(p_ids uuid[], p_pace double precision, p_start timestamptz)
returns table (id uuid, after timestamptz)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off set lock_timeout = '200ms'
as $$
#variable_conflict use_column
declare
  q record;
  now timestamptz := jobwell.now();
  due timestamptz := now;
  got integer;
begin
  for q in
    select f.*, u.due as last_turn from jobwell.quarantine f left join jobwell.quarantine_turns u on u.job_id = f.id
     where f.id = any (p_ids) order by f.id for update of f skip locked loop
    if p_pace is not null then
      due := greatest(now, p_start);
    end if;
    got := 0;
    begin
      if q.dedup = 'window' then
        insert into jobwell.dedup as d (key, job_id, task, since, until)
        values (q.dedup_key, q.id, q.task, now, now + make_interval(secs => q.dedup_window))
        on conflict (key) do update set job_id = excluded.job_id, task = excluded.task, since = excluded.since, until = excluded.until
           where d.job_id = excluded.job_id or d.until <= now or jobwell.dedup_void(d.job_id);
        get diagnostics got = row_count;
      end if;
      if q.dedup <> 'window' or got = 1 then
        insert into jobwell.jobs (alone, id, gate, enqueued_at, run_at, ready_at, deadline, rank, attempt, failures, crashes, losses, postponements,
                                  bytes, queue, task, state, tenant, lock_key, args, meta, dedup_key, dedup, dedup_window)
        values (q.alone, q.id, q.gate, now, due, case when due <= now then now end, due + (q.deadline - greatest(q.enqueued_at, q.last_turn)), q.rank, q.attempt, 0, 0, 0, 0,
                q.bytes, q.queue, q.task, case when due <= now then 'ready' else 'scheduled' end, q.tenant, q.lock_key, q.args, q.meta,
                q.dedup_key, case q.dedup when 'begun' then 'started' else q.dedup end, q.dedup_window)
        on conflict (dedup_key) where dedup in ('done', 'started') do nothing;
        get diagnostics got = row_count;
      end if;
    exception when lock_not_available then
      got := 0;
      perform set_config('lock_timeout', '20ms', true);  -- the next ones may meet the same transaction
    end;
    if got = 0 then
      insert into jobwell.dedup_hits (at, task, key, reason, holder, state, tenant)
      select now, q.task, q.dedup_key, 'retry', h.id, h.state, q.tenant from jobwell.dedup_holders(array[q.dedup_key], q.dedup = 'window') h;
      continue;
    end if;
    if due > now or q.last_turn is not null then
      insert into jobwell.quarantine_turns (job_id, due) values (q.id, due) on conflict (job_id) do update set due = excluded.due;
    end if;
    delete from jobwell.quarantine f where f.id = q.id;
    delete from jobwell.cancels c where c.job_id = q.id;  -- meant for its former life
    if due <= now then
      perform jobwell.wake(array[q.queue]);
    end if;
    if p_pace is not null then
      p_start := due + make_interval(secs => 1 / p_pace);
    end if;
    id := q.id;
    after := case when p_pace is not null then p_start end;
    return next;
  end loop;
end $$;

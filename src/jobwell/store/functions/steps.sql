-- version: 1
-- What follows when a job with steps is over and has not succeeded: the steps that are done are undone, the last one first, each
-- by a job of its own, and each only when the one before it is over.

-- Enqueue what undoes the last step that is done and not undone. False: there is none, one is being undone,
-- or nobody knows what it returned.
create or replace function jobwell.undo_next(p_job uuid, p_tenant text, p_meta json) returns boolean
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  s     record;
  now   timestamptz;
  texts text;
  hex   text;
  undo  uuid;
begin
  if not exists (select from jobwell.steps t where t.job_id = p_job and t.compensate is not null) then
    return false;
  end if;
  -- One order for everybody; the statements after this one see what the wait has let happen.
  perform from jobwell.steps t where t.job_id = p_job order by t.name for update;
  if exists (select from jobwell.steps t where t.job_id = p_job and t.state = 'compensating') then
    return false;
  end if;
  select t.* into s from jobwell.steps t where t.job_id = p_job and t.state = 'done' and t.compensate is not null order by t.seq desc limit 1;
  if not found or not s.kept then
    return false;  -- what it returned is not known, so a person says it (steps.open), and those before it wait as well
  end if;
  now := jobwell.now();
  texts := json_build_object(s.compensate ->> 'parameter', coalesce(s.result, 'null'::json))::text;
  if (s.compensate ->> 'version')::integer > 1 then
    texts := '{"$version":' || (s.compensate ->> 'version') || ',' || substr(texts, 2);
  end if;
  -- An id that sorts by time, as those that producers make.
  hex := lpad(to_hex((extract(epoch from now) * 1000)::bigint), 12, '0');
  undo := (left(hex, 8) || '-' || right(hex, 4) || '-7' || substr(gen_random_uuid()::text, 16))::uuid;
  if octet_length(texts) > 2048 then
    insert into jobwell.payloads (id, args) values (undo, texts::json);
  end if;
  insert into jobwell.jobs (id, queue, task, rank, gate, tenant, lock_key, bytes, args, meta, state, enqueued_at, run_at, ready_at, deadline)
  values (undo, s.compensate ->> 'queue', s.compensate ->> 'task', (s.compensate ->> 'rank')::smallint, (s.compensate ->> 'gate')::bigint,
          p_tenant, '', octet_length(texts), case when octet_length(texts) <= 2048 then texts::json end,
          (coalesce(p_meta::jsonb, '{}') || jsonb_build_object('parent', p_job))::json, 'ready', now, now, now,
          now + make_interval(secs => (s.compensate ->> 'deadline')::float8));
  update jobwell.steps t set state = 'compensating', undo_id = undo where t.job_id = p_job and t.name = s.name;
  perform jobwell.wake(array[s.compensate ->> 'queue']);
  return true;
end $$;

-- In the transaction in which a job is cancelled, calls itself off, or is given up, whoever does that. One in the quarantine is not
-- over: a person may take it back, and it goes on behind its last step.
create or replace function jobwell.compensate() returns trigger
language plpgsql volatile as $$
begin
  perform jobwell.undo_next(new.id, new.tenant, new.meta);
  return null;
end $$;

create or replace trigger compensate after insert on jobwell.finished
  for each row when (new.state <> 'succeeded' and current_setting('jobwell.moving', true) is distinct from 'on')
  execute function jobwell.compensate();

-- Go on where what undoes a step is over: it has succeeded, or a person has given it up. In the quarantine it waits, and with it
-- those before it. Returns how many steps were settled; call again while it is p_limit.
create or replace function jobwell.go_on_undoing(p_limit integer) returns integer
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  s       record;
  f       record;
  settled integer := 0;
begin
  for s in
    select t.job_id, t.name, t.undo_id from jobwell.steps t
     where t.state = 'compensating' and not exists (select from jobwell.jobs j where j.id = t.undo_id)
       and not exists (select from jobwell.quarantine q where q.id = t.undo_id)
     order by t.undo_id limit p_limit loop
    perform from jobwell.steps t where t.job_id = s.job_id order by t.name for update;  -- in the order of undo_next
    select e.state, e.tenant, e.meta, e.note into f from jobwell.finished e where e.id = s.undo_id order by e.finished_at desc limit 1;
    update jobwell.steps t
       set state = case when f.state = 'succeeded' then 'compensated' else 'left' end, undone_at = jobwell.now(),
           note = case when f.state = 'succeeded' then t.note else left(coalesce(f.note, 'what undoes it is nowhere any more'), 1000) end
     where t.job_id = s.job_id and t.name = s.name and t.state = 'compensating' and t.undo_id = s.undo_id;
    continue when not found;  -- another worker has been here
    perform jobwell.undo_next(s.job_id, coalesce(f.tenant, ''), f.meta);
    settled := settled + 1;
  end loop;
  return settled;
end $$;

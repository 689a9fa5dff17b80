-- version: 1
-- What follows a final failure, in the transaction that puts the job into the quarantine, whoever does that.

create or replace function jobwell.follow_up() returns trigger
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  f     jsonb;
  now   timestamptz;
  texts text;
  hex   text;
begin
  select g.follow_up into f from jobwell.gates g where g.gate = new.gate;
  if f is null then
    return null;
  end if;
  now := jobwell.now();
  texts := json_build_object(f ->> 'parameter', json_build_object('$data', json_build_array(f ->> 'class', json_build_object(
    'id', json_build_object('$uuid', new.id), 'task', new.task, 'queue', new.queue, 'tenant', new.tenant, 'reason', new.reason, 'code', new.code,
    'error_type', new.error_type, 'message', left(coalesce(new.message, ''), 1000), 'attempt', new.attempt, 'failures', new.failures,
    'enqueued_at', json_build_object('$datetime', to_char(new.enqueued_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')),
    'failed_at', json_build_object('$datetime', to_char(new.failed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))))));
  if (f ->> 'version')::integer > 1 then
    texts := '{"$version":' || (f ->> 'version') || ',' || substr(texts, 2);
  end if;
  -- An id that sorts by time, as those that producers make.
  hex := lpad(to_hex((extract(epoch from now) * 1000)::bigint), 12, '0');
  insert into jobwell.jobs (id, queue, task, rank, gate, tenant, lock_key, bytes, args, meta, state, enqueued_at, run_at, ready_at, deadline)
  values ((left(hex, 8) || '-' || right(hex, 4) || '-7' || substr(gen_random_uuid()::text, 16))::uuid, f ->> 'queue', f ->> 'task',
          (f ->> 'rank')::smallint, (f ->> 'gate')::bigint, new.tenant, '', octet_length(texts), texts::json, new.meta, 'ready', now, now, now,
          now + make_interval(secs => (f ->> 'deadline')::float8));
  perform jobwell.wake(array[f ->> 'queue']);
  return null;
end $$;

-- A store that is moved has followed its failures already.
create or replace trigger follow_up after insert on jobwell.quarantine
  for each row when (current_setting('jobwell.moving', true) is distinct from 'on') execute function jobwell.follow_up();

-- The job path: jobs and what becomes of them, workers, queues, audit.
-- Runs before the code of the same release is deployed; nothing here needs the old code to stop.
-- `jobwell.` is the default schema; the migrator puts the configured one in its place.

-- The one clock. Every statement reads the time here, so that tests can travel in it, schema by schema.
-- In a condition write (select jobwell.now()): read once per statement, and indexes stay usable.
create or replace function jobwell.now() returns timestamptz
language sql volatile parallel safe as $$ select clock_timestamp() $$;

-- Which store this is: `within` compares it, so that a job never lands in another database unnoticed.
create table jobwell.store (
  id         uuid not null default gen_random_uuid(),
  created_at timestamptz not null default jobwell.now(),
  one_row    boolean primary key default true check (one_row)
);
insert into jobwell.store default values;

-- Live jobs only. Few and narrow updates: one at claim, then the row leaves.
create table jobwell.jobs (
  id            uuid primary key,                            -- UUIDv7, made by the producer
  gate          bigint not null,                             -- hash of (task, resources)
  enqueued_at   timestamptz not null default jobwell.now(),
  run_at        timestamptz not null default jobwell.now(),  -- not before; the next attempt while retrying
  ready_at      timestamptz default jobwell.now(),           -- set at every entry to ready
  deadline      timestamptz,                                 -- covers waiting and all attempts
  started_at    timestamptz,                                 -- of the current attempt
  claim_id      uuid,                                        -- the fence: every write of an attempt matches it
  worker        uuid,
  rank          smallint not null default 100,               -- 100 - priority: lower goes first
  attempt       smallint not null default 0,                 -- counts starts; never a fence
  failures      smallint not null default 0,
  crashes       smallint not null default 0,
  losses        smallint not null default 0,
  postponements integer not null default 0,
  bytes         integer not null default 0,                  -- of the arguments, wherever they stand
  queue         text collate "C" not null default 'default',
  task          text collate "C" not null,
  state         text collate "C" not null default 'ready'
                check (state in ('scheduled', 'ready', 'running', 'retrying')),
  tenant        text collate "C" not null default '',
  lock_key      text collate "C" not null default '',
  args          json,                                        -- null: in payloads
  meta          json                                         -- request_id, initiator, parent, …
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);

-- The claim walks this one, lane by lane.
create index jobs_ready on jobwell.jobs (queue, rank, gate, tenant, lock_key, ready_at, id) where state = 'ready';
-- Whether a queue holds jobs with lock keys at all: where it does not, the claim skips that part.
create index jobs_locked on jobwell.jobs (queue) where state = 'ready' and lock_key <> '';
-- Due jobs are flipped to ready from here, so a million parked retries cost the claim nothing.
create index jobs_due on jobwell.jobs (run_at) where state in ('scheduled', 'retrying');
-- Rescue and reconciliation find a worker's jobs here.
create index jobs_running on jobwell.jobs (worker) where state = 'running';
-- One at a time per key, by constraint; the claim looks here first.
create unique index jobs_lock_held on jobwell.jobs (lock_key) where state = 'running' and lock_key <> '';

-- Arguments above the inline limit: written once, never moved with the row.
create table jobwell.payloads (
  id   uuid primary key,
  args json not null
) with (autovacuum_vacuum_scale_factor = 0.02);
alter table jobwell.payloads alter column args set storage external;

-- Succeeded, cancelled and resolved jobs, by day; a whole day is dropped at once.
create table jobwell.finished (
  id            uuid not null,
  finished_at   timestamptz not null default jobwell.now(),
  enqueued_at   timestamptz not null,
  run_at        timestamptz not null,
  started_at    timestamptz,
  worker        uuid,
  rank          smallint not null,
  attempt       smallint not null,
  failures      smallint not null,
  bytes         integer not null,
  queue         text collate "C" not null,
  task          text collate "C" not null,
  state         text collate "C" not null check (state in ('succeeded', 'cancelled', 'failed')),
  tenant        text collate "C" not null,
  args          json,
  meta          json,
  result        json,
  note          text                                        -- why there is no result, why it was cancelled
) partition by range (finished_at);
create index finished_id on jobwell.finished (id);
create table jobwell.finished_default partition of jobwell.finished default;
create index finished_default_old on jobwell.finished_default (finished_at);

-- Failed jobs that wait for a human.
create table jobwell.quarantine (
  id            uuid primary key,
  failed_at     timestamptz not null default jobwell.now(),
  enqueued_at   timestamptz not null,
  run_at        timestamptz not null,
  deadline      timestamptz,
  started_at    timestamptz,
  worker        uuid,
  gate          bigint not null,
  rank          smallint not null,
  attempt       smallint not null,
  failures      smallint not null,
  crashes       smallint not null,
  losses        smallint not null,
  postponements integer not null,
  bytes         integer not null,
  queue         text collate "C" not null,
  task          text collate "C" not null,
  tenant        text collate "C" not null,
  lock_key      text collate "C" not null,
  reason        text collate "C" not null
                check (reason in ('rejected', 'exhausted', 'deadline', 'crashed', 'lost', 'held', 'unsupported', 'invalid')),
  code          text collate "C",                           -- of Reject: what a program can tell apart
  error_type    text collate "C",
  message       text,
  traceback     text,
  fingerprint   text collate "C" not null,                  -- task + error type + place
  args          json,
  meta          json
);
create index quarantine_failed_at on jobwell.quarantine (failed_at, id);
create index quarantine_fingerprint on jobwell.quarantine (fingerprint, failed_at);

-- One row per attempt that did not simply succeed the first time; append-only.
create table jobwell.attempts (
  job_id      uuid not null,
  ended_at    timestamptz not null default jobwell.now(),
  started_at  timestamptz,
  claim_id    uuid,
  worker      uuid,
  attempt     smallint not null,
  outcome     text collate "C" not null
              check (outcome in ('succeeded', 'failed', 'retrying', 'snoozed', 'released', 'crashed', 'lost', 'cancelled')),
  kind        text collate "C",                             -- temporary, logical, throttled, unknown
  error_type  text collate "C",
  message     text,
  traceback   text,
  next_at     timestamptz,                                  -- when the next attempt is due
  note        text                                          -- why the next time was capped, what caused the release
) partition by range (ended_at);
create index attempts_job on jobwell.attempts (job_id, ended_at);
create table jobwell.attempts_default partition of jobwell.attempts default;
create index attempts_default_old on jobwell.attempts_default (ended_at);

-- One operating-system process each, with a fresh id at each start. The lease of all its jobs lives here.
create table jobwell.workers (
  id          uuid primary key,
  lease_until timestamptz not null,
  beat_at     timestamptz not null default jobwell.now(),
  state       text collate "C" not null default 'live' check (state in ('live', 'draining', 'dead')),
  idle        boolean not null default false,               -- "wake me": the only time an enqueue notifies
  busy        integer not null default 0,
  started_at  timestamptz not null default jobwell.now(),
  pid         integer not null,
  host        text not null,
  name        text not null,
  version     text not null,
  slots       integer not null,
  queues      text[] not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Who changed what.
create table jobwell.audit (
  id     bigint generated always as identity primary key,
  at     timestamptz not null default jobwell.now(),
  actor  text not null,
  action text collate "C" not null,
  target text,
  detail json
);
create index audit_at on jobwell.audit (at);

-- Runs: bulk operations with the state of every item in every stage.
-- Runs before the code of the same release is deployed; older code leaves these tables alone, and its workers hand jobs of stages
-- that they do not know back, as they do with any unknown task.

create table jobwell.runs (
  id         uuid primary key,
  operation  text collate "C" not null,
  run_key    text collate "C",                              -- chosen by who started it: the same key is the same run
  tenant     text collate "C" not null default '',
  state      text collate "C" not null default 'queued'
             check (state in ('queued', 'running', 'paused', 'completed', 'completed_with_errors', 'cancelled')),
  sealed     boolean not null default false,                -- no more items come
  refused    boolean not null default false,                -- ended for its bad rows before anything ran; its key is free again
  active     boolean not null default true,                 -- housekeeping looks at it
  cancelled  boolean not null default false,                -- what is handed back or comes out of a stage is cancelled too
  canary     jsonb,                                         -- {"count": 20}, {"share": 0.05} or {"only": {…}}: what is let go first
  held       boolean not null default false,                -- the rest waits behind the canary
  on_bad     text collate "C" not null default 'stop' check (on_bad in ('stop', 'skip')),
  version    integer not null default 1,                    -- of the declaration
  items      bigint not null default 0,
  next_no    bigint not null default 1,
  duplicates bigint not null default 0,
  bad        bigint not null default 0,
  expected   bigint,                                        -- as it was told at the start; null: unknown
  secret     uuid not null default gen_random_uuid(),       -- signs the tokens of its items
  params     json,
  meta       json,                                          -- what its jobs carry
  started_by text not null,
  changed_by text,                                          -- who changed the state last, and why
  why        text,
  created_at timestamptz not null default jobwell.now(),
  started_at timestamptz,                                   -- when its first job was enqueued
  ended_at   timestamptz,
  looked_at  timestamptz not null default jobwell.now(),
  moved_at   timestamptz not null default jobwell.now(),    -- when housekeeping last saw an item come to an end
  moved      bigint not null default 0
) with (fillfactor = 50);
create unique index runs_key on jobwell.runs (operation, run_key) where not refused;
create index runs_active on jobwell.runs (looked_at) where active;
create index runs_newest on jobwell.runs (created_at, id);
create index runs_ended on jobwell.runs (ended_at) where not active;

-- What it consists of: preparation, stages, finish stages, each with the contract that its jobs had when it was started.
create table jobwell.run_stages (
  run_id     uuid not null,
  stage      smallint not null,
  kind       text collate "C" not null check (kind in ('prepare', 'items', 'finish')),
  name       text collate "C" not null,
  after      smallint,
  condition  text collate "C" not null default 'any' check (condition in ('any', 'all_done')),
  chunk      integer not null default 0,                    -- items of one job; 0: each item is a job
  room       integer not null default 0,                    -- items that jobs may hold at once
  state      text collate "C" not null default 'open'
             check (state in ('open', 'ended', 'waiting', 'enqueued', 'done', 'failed')),
  task       text collate "C" not null,
  queue      text collate "C" not null,
  rank       smallint not null,
  gate       bigint not null,
  deadline   double precision not null,
  job_id     uuid,                                          -- of a preparation or a finish
  message    text,                                          -- why it failed
  mark_at    timestamptz not null default jobwell.now(),    -- what its speed is measured from
  mark       bigint not null default 0,
  speed      double precision,                              -- items in a second
  ended_at   timestamptz,
  primary key (run_id, stage)
);

create table jobwell.run_items (
  run_id uuid not null,
  no     bigint not null,
  key    text collate "C" not null,
  data   jsonb not null,
  primary key (run_id, no)
);
create unique index run_items_key on jobwell.run_items (run_id, key);

-- How an item came to its end in a stage. No row: it is open there, or has not come there.
create table jobwell.run_states (
  run_id      uuid not null,
  no          bigint not null,
  at          timestamptz not null default jobwell.now(),
  stage       smallint not null,
  attempt     smallint not null default 1,                  -- of the item in this stage
  tries       smallint not null default 0,                  -- of these, since a person last asked for a retry
  state       text collate "C" not null check (state in ('open', 'done', 'failed', 'skipped', 'cancelled')),
  code        text collate "C",
  message     text,
  delivery    text collate "C" check (delivery in ('accepted', 'delivered', 'bounced')),
  delivery_at timestamptz,
  primary key (run_id, stage, no)
);
create index run_states_failed on jobwell.run_states (run_id, stage, no) where state = 'failed';

-- Items that wait for a job. An open item that has come to a stage is in one lot or in one live job.
create table jobwell.run_lots (
  id       bigint generated always as identity primary key,
  ready_at timestamptz not null default jobwell.now(),
  run_id   uuid not null,
  stage    smallint not null,
  held     boolean not null default false,                  -- until the run is sealed, or behind a canary
  n        integer not null,
  nos      bigint[] not null
) with (autovacuum_vacuum_scale_factor = 0.02);
create index run_lots_next on jobwell.run_lots (run_id, stage, ready_at, id) where not held;
create index run_lots_held on jobwell.run_lots (run_id, stage) where held;

-- Counters, in shards so that writers do not wait for each other; changed in the statement that changes the states.
create table jobwell.run_counts (
  run_id    uuid not null,
  stage     smallint not null,
  shard     smallint not null,
  out       bigint not null default 0,                      -- items in live jobs
  done      bigint not null default 0,
  failed    bigint not null default 0,
  skipped   bigint not null default 0,
  cancelled bigint not null default 0,
  accepted  bigint not null default 0,
  delivered bigint not null default 0,
  bounced   bigint not null default 0,
  primary key (run_id, stage, shard)
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Rows that do not fit the item's model.
create table jobwell.run_bad_rows (
  id     bigint generated always as identity primary key,
  run_id uuid not null,
  row    bigint not null,
  field  text not null,
  reason text not null,
  value  text
);
create index run_bad_rows_run on jobwell.run_bad_rows (run_id, row, id);
-- The same input may be read twice, also by two at once.
create unique index run_bad_rows_once on jobwell.run_bad_rows (run_id, row, md5(field || ' ' || reason || ' ' || coalesce(value, '')));

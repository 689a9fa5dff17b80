-- Equal jobs: who holds a key, windows, and what was suppressed.
-- Runs before the code of the same release is deployed; older producers enqueue without keys, older workers ignore them.

-- What a job is the only one of, and for how long; null for all others, which cost nothing more.
--   done      as long as it lives         begun     it was until its first start, which is over
--   started   until its first start       window    for a time: the key stands in `dedup`
--                                         released  by a person
alter table jobwell.jobs
  add column dedup_key    text collate "C",
  add column dedup        text collate "C",
  add column dedup_window double precision;                  -- seconds
alter table jobwell.quarantine
  add column dedup_key    text collate "C",
  add column dedup        text collate "C",
  add column dedup_window double precision;

-- The constraint itself. What a worker does to a job takes it out of here, or leaves it in; nothing puts it in again.
create unique index jobs_dedup on jobwell.jobs (dedup_key) where dedup in ('done', 'started');
create index quarantine_dedup on jobwell.quarantine (dedup_key) where dedup_key is not null;

-- Windows: which job a key stands for, and until when. No worker ever writes here on behalf of a job.
create table jobwell.dedup (
  key    text collate "C" primary key,
  job_id uuid not null,
  task   text collate "C" not null,
  since  timestamptz not null,
  until  timestamptz not null
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
create index dedup_until on jobwell.dedup (until);

-- Enqueues that made no job of their own. Written by whoever enqueues, in the same transaction.
create table jobwell.dedup_hits (
  id     bigint generated always as identity primary key,
  at     timestamptz not null default jobwell.now(),
  task   text collate "C" not null,
  key    text collate "C" not null,
  reason text collate "C" not null check (reason in ('skipped', 'replaced', 'debounced', 'rejected', 'retry')),
  holder uuid not null,
  state  text collate "C" not null,                         -- of the holder; 'over' behind a window
  tenant text collate "C" not null
);
create index dedup_hits_key on jobwell.dedup_hits (key, id);
create index dedup_hits_task on jobwell.dedup_hits (task, id);

-- Those that are listed no more. Both together are the count.
create table jobwell.dedup_counts (
  task   text collate "C" not null,
  reason text collate "C" not null,
  hits   bigint not null,
  primary key (task, reason)
);

-- What people say of failures of one kind, and arguments that were edited for a retry.
-- Runs before the code of the same release is deployed; older code uses neither.

-- One row for each fingerprint of which somebody has said something. What is counted comes from the quarantine itself.
create table jobwell.quarantine_groups (
  fingerprint text collate "C" primary key,
  owner       text,                                         -- null: the one that the task declares
  note        text,
  state       text collate "C" not null default 'new' check (state in ('new', 'looked at', 'waiting', 'resolved')),
  state_at    timestamptz not null default jobwell.now(),   -- a failure after it makes a resolved group new again
  set_at      timestamptz not null default jobwell.now(),
  set_by      text not null
);

-- The arguments as they were before a person edited them; kept as long as the job itself.
create table jobwell.quarantine_edits (
  id     bigint generated always as identity primary key,
  job_id uuid not null,
  at     timestamptz not null default jobwell.now(),
  actor  text not null,
  why    text,
  args   json not null
);
create index quarantine_edits_job on jobwell.quarantine_edits (job_id, at);

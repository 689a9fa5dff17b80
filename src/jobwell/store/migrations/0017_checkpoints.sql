-- What a running job keeps for its next attempt, and how far it says that it is. Two tables, since a checkpoint is large and written
-- seldom, and progress is small and written each second; both apart from the hot row of the job, which neither of them touches.
-- Runs before the code of the same release is deployed; older code uses neither.

-- One row for each name under which a job keeps something: '' is its checkpoint, other names are cursors of loops.
create table jobwell.checkpoints (
  job_id   uuid not null,
  name     text collate "C" not null,
  claim_id uuid not null,                                  -- of the attempt that saved it
  attempt  smallint not null,
  saved_at timestamptz not null default jobwell.now(),
  value    json not null,
  primary key (job_id, name)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

create table jobwell.progress (
  job_id   uuid primary key,
  claim_id uuid not null,                                  -- of the attempt that told it
  attempt  smallint not null,
  done     bigint not null,
  total    bigint,
  note     text,
  at       timestamptz not null default jobwell.now()
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

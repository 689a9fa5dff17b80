-- Steps: recorded parts of a job, often outside effects, which are not repeated blindly (docs/steps.md).
-- Runs before the code of the same release is deployed; older code uses none of it.
create table jobwell.steps (
  job_id     uuid not null,
  name       text collate "C" not null,
  seq        bigint generated always as identity,           -- the order in which they were begun
  state      text collate "C" not null default 'started'
             check (state in ('started', 'done', 'compensating', 'compensated', 'left')),
  unknown    text collate "C" not null                      -- what becomes of it where it is found started
             check (unknown in ('repeat', 'hold', 'check')),
  attempt    smallint not null,                             -- that began it last
  claim_id   uuid not null,                                 -- of that attempt
  started_at timestamptz not null default jobwell.now(),
  done_at    timestamptz,
  kept       boolean not null default false,                -- done, and what it gave can be given again
  result     json,
  note       text,
  call       text,                                          -- the function and its plain arguments, for people
  compensate jsonb,                                         -- the task that undoes it (core/steps.py). Null: nothing does
  undo_id    uuid,                                          -- the job that undoes it
  undone_at  timestamptz,
  primary key (job_id, name)
) with (autovacuum_vacuum_scale_factor = 0.02);
-- What is under way, or waits for somebody: small, however many steps there are.
create index steps_open on jobwell.steps (state, undo_id) where state in ('started', 'compensating');
create index steps_unkept on jobwell.steps (job_id) where state = 'done' and not kept and compensate is not null;

-- Jobs that wait for others to end. docs/dependencies.md tells it in words.
-- Runs before the code of the same release is deployed; older workers leave jobs that wait alone, and release them all the same,
-- since triggers do it (functions/follow.sql).

alter table jobwell.jobs
  add column linked boolean not null default false,         -- others wait for it, or it waits for others: its leaving is looked at
  drop constraint jobs_state_check,
  -- What is there has passed a stricter one: nothing has to be read.
  add constraint jobs_state_check check (state in ('scheduled', 'ready', 'running', 'retrying', 'waiting')) not valid;

-- Beside each job that waits: narrow, since it changes with each end that the job waits for.
create table jobwell.waits (
  job      uuid primary key,
  open     integer not null,                                -- how many ends it still waits for
  ended    boolean not null,                                -- for their ends, whatever they are; false: for their success
  delay    double precision,                                -- seconds from its release until it is due
  run_at   timestamptz,                                     -- not before
  deadline double precision not null                        -- seconds from then on
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500);

-- Which job follows which. Kept when the wait is over, as long as the job that followed.
create table jobwell.follows (
  job   uuid not null,
  after uuid not null,
  state text collate "C" not null default 'live'
        check (state in ('live', 'succeeded', 'failed', 'cancelled', 'discarded', 'gone')),  -- of `after`; failed: in the quarantine
  primary key (job, after)
) with (fillfactor = 80);
create index follows_after on jobwell.follows (after);

-- What a transaction that is not committed yet has to look at before it is: empty for everybody else.
create table jobwell.unsettled (
  id          bigint generated always as identity primary key,
  transaction xid8 not null,
  after       uuid,                                         -- it left the table where it stood: for all that follow it
  job         uuid                                          -- it is new: for all that it follows
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
create index unsettled_in on jobwell.unsettled (transaction);

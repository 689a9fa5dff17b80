-- What operators may do: pause queues, cancel jobs, and act on many at once.
-- Runs before the code of the same release is deployed; older workers ignore what they do not know.

-- Queues that are held. '*' holds all of them. Read by every claim, so a pause is effective at once and outlives restarts.
create table jobwell.queues (
  name         text collate "C" primary key,
  paused_at    timestamptz not null default jobwell.now(),
  paused_by    text not null,
  paused_why   text,
  paused_until timestamptz                                  -- resumes by itself
);

-- Running jobs that shall stop. The row goes when the job has ended, whichever way.
create table jobwell.cancels (
  job_id uuid primary key,
  at     timestamptz not null default jobwell.now(),
  actor  text not null,
  why    text
);

-- Actions on many jobs: one row each, moved forward in the same commit as each piece, so that another process can go on
-- where one died.
create table jobwell.bulk_actions (
  id       uuid primary key default gen_random_uuid(),
  at       timestamptz not null default jobwell.now(),
  beat_at  timestamptz not null default jobwell.now(),      -- of the last piece
  ended_at timestamptz,
  actor    text not null,
  verb     text collate "C" not null,
  chosen   json not null,                                   -- the filter, with the moment up to which it looks
  after_id uuid not null default '00000000-0000-0000-0000-000000000000',
  total    integer not null,                                -- as previewed
  done     integer not null default 0,
  state    text collate "C" not null default 'open' check (state in ('open', 'done', 'stopped')),
  why      text
);
create index bulk_actions_open on jobwell.bulk_actions (beat_at) where state = 'open';

-- What the live releases declare, as their workers publish it: operators' commands know tasks without anybody's code.
create table jobwell.catalog (
  task    text collate "C" primary key,
  spec    json not null,
  release text not null,
  seen_at timestamptz not null default jobwell.now()
);

alter table jobwell.workers
  add column tasks   text[] not null default '{}',          -- that it can run
  add column wakeups text collate "C" not null default 'poll' check (wakeups in ('notify', 'poll'));

-- Reports on failed jobs that are sent by themselves: who wants them, when, and what was sent.
-- Runs before the code of the same release is deployed; older workers send none.

create table jobwell.report_subscriptions (
  id            bigint generated always as identity primary key,
  filters       jsonb not null default '{}',                -- which failed jobs, as `jobwell.failed_within` takes it
  group_by      text collate "C" not null default 'code',
  form          text collate "C" not null check (form in ('csv', 'xlsx', 'html', 'json')),  -- of what is attached
  recipients    text[] not null check (cardinality(recipients) > 0),  -- addresses of mail; what has no @ is for a hook
  even_empty    boolean not null default false,
  daily         time,                                       -- of the day in `zone`
  zone          text collate "C" not null default 'UTC',
  threshold     integer check (threshold > 0),              -- so many new failures …
  within        double precision check (within > 0),        -- … within so many seconds
  made_at       timestamptz not null default jobwell.now(),
  made_by       text not null,
  why           text,
  paused_at     timestamptz,
  paused_by     text,
  -- How far it is.
  daily_since   timestamptz not null default jobwell.now(), -- what failed until then is no part of the next daily report
  told_until    timestamptz not null default jobwell.now(), -- what failed until then does not count towards the threshold
  alarmed_at    timestamptz,                                -- the last one for the threshold
  next_daily    timestamptz,
  look_at       timestamptz not null default jobwell.now(), -- when somebody looks at it next
  -- The one that is being sent: the same one is tried until it is through.
  pending_kind  text collate "C" check (pending_kind in ('daily', 'threshold')),
  pending_since timestamptz,
  pending_until timestamptz,
  pending_done  text[] not null default '{}',               -- recipients that have it already
  failures      integer not null default 0,                 -- tries in a row that did not go through
  last_error    text,
  last_error_at timestamptz,
  last_sent     timestamptz,
  test_asked    timestamptz,                                -- somebody wants one now, to see whether it arrives
  test_by       text,
  -- The lease of the worker that is at it. Only who holds it writes how far it is.
  claim         uuid,
  claimed_until timestamptz,
  check (daily is not null or threshold is not null),
  check ((threshold is null) = (within is null)),
  check ((daily is null) = (next_daily is null))
);

-- What was sent, a row for each report; kept for some months, also after its subscription has ended.
create table jobwell.report_log (
  id           bigint generated always as identity primary key,
  subscription bigint not null,
  at           timestamptz not null default jobwell.now(),
  kind         text collate "C" not null check (kind in ('daily', 'threshold', 'test')),
  since        timestamptz not null,
  until        timestamptz not null,
  jobs         integer,                                     -- in it; null: it was not made
  recipients   text[] not null,
  worker       uuid not null,
  error        text                                         -- of a test that did not go through, or recipients that were refused
);
create index report_log_subscription on jobwell.report_log (subscription, id);

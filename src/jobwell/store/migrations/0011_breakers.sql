-- Circuit breakers of resources, and what their calls told lately.
-- Runs before the code of the same release is deployed; older workers keep to an open breaker, since the claim does, and tell nothing.

create table jobwell.breakers (
  resource       text collate "C" primary key,
  state          text collate "C" not null default 'closed' check (state in ('closed', 'open')),  -- open and past `until`: probing
  term           bigint not null default 1,                 -- grows with each change of state: what is decided is decided once
  since          timestamptz not null default jobwell.now(),
  until          timestamptz,                               -- of an open one
  opens          integer not null default 0,                -- in a row, since it was last closed
  why            text,
  changed_by     text,                                      -- an operator; null: the calls themselves
  probes         integer not null default 1 check (probes > 0),
  span           double precision not null check (span > 0),  -- seconds of the window; it is counted in two halves
  half_at        timestamptz not null default jobwell.now(),  -- when the younger half began
  good           integer not null default 0,
  bad            integer not null default 0,
  good_before    integer not null default 0,
  bad_before     integer not null default 0,
  firsts         integer not null default 0,                -- attempts that called it and had not failed before
  retries        integer not null default 0,                -- further attempts that were granted
  firsts_before  integer not null default 0,
  retries_before integer not null default 0,
  declared_at    timestamptz not null default jobwell.now()
);

-- Limits, rates and weights; what else may be held besides queues; and what stands behind a gate.
-- Runs before the code of the same release is deployed; the claim that older workers call keeps the limits as well.

-- The gates that live releases declare. A job carries only the number (a hash); here it says what is behind it.
create table jobwell.gates (
  gate      bigint primary key,
  task      text collate "C" not null,
  resources text[] not null default '{}',
  busy      text collate "C" not null default 'wait' check (busy in ('wait', 'skip')),  -- of its lock: what waits, or is dropped
  ordered   boolean not null default false,                 -- of its lock: a job that is tried again is not passed by later ones
  key_rates json,                                           -- of its lock: how often per key
  seen_at   timestamptz not null default jobwell.now()
);
create index gates_special on jobwell.gates (gate) where busy = 'skip' or ordered or key_rates is not null;

-- What is limited, and how: the value from code, and over it what an operator has set for a time.
create table jobwell.limits (
  kind        text collate "C" not null check (kind in ('task', 'queue', 'resource', 'tenant')),
  name        text collate "C" not null,                    -- of a tenant '*': each that is not named
  per         text collate "C" not null default 'fleet' check (per in ('fleet', 'host', 'process', 'tenant')),
  concurrency integer check (concurrency >= 0),
  rates       json,                                         -- [{count, seconds, every, slack}], core/limits.py
  weight      double precision check (weight > 0),          -- of a tenant
  declared    boolean not null default false,               -- by code
  edition     text collate "C",                             -- of the code that declared it
  override    jsonb,                                        -- any of concurrency, rates, weight; null in it: none
  set_at      timestamptz,
  set_by      text,
  set_why     text,
  set_until   timestamptz,                                  -- then the value from code counts again
  primary key (kind, name, per)
);

-- Which code has declared limits, and since when: of two that live at the same time the younger decides.
create table jobwell.limit_editions (
  edition    text collate "C" primary key,
  first_seen timestamptz not null default jobwell.now()
);
alter table jobwell.workers add column edition text collate "C";

-- What is in use of a limit. One live row each, replaced by its successor under a lock of its own; it is read from the young end,
-- so that what vacuum could not take away yet lies behind it and is never walked over.
create table jobwell.limit_uses (
  subject text collate "C" not null,
  turn    bigint not null,
  jobs    uuid[] not null default '{}',                     -- that were let in; those that have ended count no more
  claims  uuid[] not null default '{}',
  alive   integer not null default 0,                       -- when they were last looked through
  tats    timestamptz[] not null default '{}',              -- one for each window of a rate: when the next would be on time
  primary key (subject, turn)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500);
alter table jobwell.limit_uses alter column jobs set storage external, alter column claims set storage external;  -- ids do not compress

-- Tasks, resources and tenants that are held. Queues stand in `queues`.
create table jobwell.holds (
  kind       text collate "C" not null check (kind in ('task', 'resource', 'tenant')),
  name       text collate "C" not null,
  held_at    timestamptz not null default jobwell.now(),
  held_by    text not null,
  held_why   text,
  held_until timestamptz,                                   -- resumes by itself
  primary key (kind, name)
);

-- Only jobs with lock keys stand in these.
create index jobs_ready_key on jobwell.jobs (lock_key) where state = 'ready' and lock_key <> '';
create index jobs_later_key on jobwell.jobs (lock_key) where state in ('scheduled', 'retrying') and lock_key <> '';

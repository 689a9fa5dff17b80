-- How long queues are that have a limit, and what an action on many jobs needs besides its choice.
-- Runs before the code of the same release is deployed; older code uses neither.

-- One row for each queue with a limit, shared by all producers: whoever finds it old counts anew.
create table jobwell.queue_lengths (
  queue      text collate "C" primary key,
  length     integer not null,                              -- ready jobs, counted up to the cap
  cap        integer not null,
  counted_at timestamptz not null,
  took       double precision not null                      -- seconds for which the count took
) with (fillfactor = 50);

alter table jobwell.bulk_actions add column args json;      -- such as the priority to give

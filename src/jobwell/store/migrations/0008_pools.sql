-- What a worker's pools have and take at this moment, for people and for `jobs why`; null: it has none, its slots are for all.
-- Runs before the code of the same release is deployed; older workers leave the columns as they are.
alter table jobwell.workers
  add column pools json,                                   -- [{name, queues, order, slots, most, least, busy, may}]
  add column held  text not null default '';               -- why heavy tasks are not begun; empty: they are

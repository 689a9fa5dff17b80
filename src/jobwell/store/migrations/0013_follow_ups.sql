-- What follows when a job of a gate has failed for good: the task to be enqueued then (core/failed.py). Null: nothing.
-- Older code leaves it as it is.
alter table jobwell.gates add column follow_up jsonb;

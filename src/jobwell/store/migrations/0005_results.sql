-- Results that are kept for a shorter time than their job.
-- Runs before the code of the same release is deployed; older workers leave the column empty, which means: as long as the job.

alter table jobwell.finished add column result_until timestamptz;  -- null: the result stays as long as the row

-- Only jobs of tasks that declare a time of their own stand here, so the others cost nothing.
create index finished_result_until on jobwell.finished (result_until) where result_until is not null;

-- Where an error comes from, as the classifier knows it: code, external, limits or validation. Null: nobody has said, as for all rows
-- of older workers, for crashes and for losses. And of an attempt after which the job went to another queue: the one that it left.
-- Runs before the code of the same release is deployed; older code leaves both as they are.

alter table jobwell.attempts add column origin text collate "C", add column queue text collate "C";
alter table jobwell.quarantine add column origin text collate "C";

-- When the turn of a job is, or was, that was retried at a pace: its deadline counts from there.
create table jobwell.quarantine_turns (
  job_id uuid primary key,
  due    timestamptz not null
);

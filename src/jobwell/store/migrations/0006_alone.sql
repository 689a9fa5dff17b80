-- Whether a job runs alone, behind a gate of its own: its process has died once. Kept through the quarantine.
alter table jobwell.jobs add column alone boolean not null default false;
alter table jobwell.quarantine add column alone boolean not null default false;

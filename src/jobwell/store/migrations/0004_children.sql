-- How many child processes a worker keeps for jobs that run alone; 0: it runs everything in its own process.
alter table jobwell.workers add column children integer not null default 0;

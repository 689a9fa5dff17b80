-- How many child processes a worker keeps for jobs that run alone; 0: it runs everything in its own process.
alter table jobwell.workers add column children integer not null default 0;
-- What an operator asks of it: 'drain' ends it after its jobs, within the grace; 'stop' at once, its jobs go back.
alter table jobwell.workers add column asked text collate "C" check (asked in ('drain', 'stop'));

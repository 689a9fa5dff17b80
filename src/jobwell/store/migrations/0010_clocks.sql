-- What a worker says of its host's clock and of its event loop, with each renewal.
-- Runs before the code of the same release is deployed; older workers leave both empty.
alter table jobwell.workers
  add column skew double precision,                         -- seconds by which its clock is ahead of this server's
  add column lag  double precision;                         -- seconds for which its event loop did not answer, at the worst of late

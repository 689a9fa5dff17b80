-- name: register
-- Asked again when the answer was lost; the first renewal follows at once.
with put as (
  insert into jobwell.workers (id, lease_until, pid, host, name, version, slots, queues)
  values (:id, jobwell.now() + make_interval(secs => :lease), :pid, :host, :name, :version, :slots, :queues)
  on conflict (id) do nothing)
select jobwell.now(), clock_timestamp();

-- name: renew
-- By UPDATE only: no row means that somebody declared this worker dead. The commit does not wait for a standby, nor does any
-- other that holds this row: a standby that is away holds up enqueues, claims and outcomes, but must not cost the lease.
update jobwell.workers set lease_until = jobwell.now() + make_interval(secs => :lease), beat_at = jobwell.now(), busy = :busy,
       wakeups = :wakeups, skew = :skew, lag = :lag
where id = :id and state <> 'dead'
returning jobwell.now(), clock_timestamp(),
          case when current_setting('synchronous_commit') not in ('off', 'local') then set_config('synchronous_commit', 'local', true) end;

-- name: listens
select * from pg_listening_channels();

-- name: echo
select pg_notify(:channel, :text);

-- name: idle
update jobwell.workers set idle = :idle where id = :id and idle <> :idle
returning case when current_setting('synchronous_commit') not in ('off', 'local') then set_config('synchronous_commit', 'local', true) end;

-- name: drain
update jobwell.workers set state = 'draining', idle = false where id = :id and state = 'live'
returning case when current_setting('synchronous_commit') not in ('off', 'local') then set_config('synchronous_commit', 'local', true) end;

-- name: leave
-- A worker that has handed everything back takes its row with it.
delete from jobwell.workers where id = :id;

-- name: expire
-- The supervisor saw the process die: nobody needs to wait for the end of the lease.
update jobwell.workers set state = 'dead', idle = false where id = :id;

-- name: bury
select * from jobwell.bury(:worker);

-- name: rescue
select jobwell.rescue(:limit::integer, :bound::integer);

-- name: list
select id, name, host, pid, version, state, queues, slots, busy, started_at, extract(epoch from jobwell.now() - beat_at)::float8 as silent,
       extract(epoch from jobwell.now() - started_at)::float8 as up, tasks, wakeups,
       skew, lag, pools, held
from jobwell.workers order by state, started_at limit :limit;

-- name: forget
-- Dead workers stay visible for a while.
delete from jobwell.workers where id = any (array(
  select w.id from jobwell.workers w where w.state = 'dead' and w.lease_until < jobwell.now() - make_interval(secs => :seconds)
     and not exists (select from jobwell.jobs j where j.state = 'running' and j.worker = w.id) for update skip locked));

-- name: find
select id, name, host, pid, version, state, queues, slots, busy, started_at, extract(epoch from jobwell.now() - beat_at)::float8 as silent,
       extract(epoch from jobwell.now() - started_at)::float8 as up, tasks, wakeups,
       skew, lag, pools, held
from jobwell.workers where name = :typed or (length(:beginning) >= 4 and starts_with(replace(id::text, '-', ''), :beginning))
order by started_at limit 2;

-- name: runs
-- What a worker runs now, longest first.
select id, task, queue, tenant, 100 - rank as priority, attempt, started_at, extract(epoch from jobwell.now() - started_at)::float8 as seconds
from jobwell.jobs where state = 'running' and worker = :worker order by started_at, id limit :limit;

-- name: suspect
select jobwell.suspect(:worker, :how, :bound::integer);

-- name: keeps_children
update jobwell.workers set children = :children where id = :id;

-- name: pools
update jobwell.workers set pools = :pools::json, slots = :slots, held = :held where id = :id;

-- name: renew_for
-- As `renew`.
update jobwell.workers set lease_until = jobwell.now() + make_interval(secs => :lease) where id = :id and state <> 'dead'
returning case when current_setting('synchronous_commit') not in ('off', 'local') then set_config('synchronous_commit', 'local', true) end;

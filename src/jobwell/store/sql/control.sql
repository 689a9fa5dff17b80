-- name: pause
insert into jobwell.queues (name, paused_by, paused_why, paused_until)
select q, :actor, :why, :until::timestamptz from unnest(:queues::text[]) q
on conflict (name) do update set paused_at = jobwell.now(), paused_by = excluded.paused_by, paused_why = excluded.paused_why,
                                 paused_until = excluded.paused_until
returning name;

-- name: resume
delete from jobwell.queues where :everything or name = any (:queues::text[]) returning name, jobwell.wake(array[name]);

-- name: wake_all
-- Whoever is idle, whatever it serves.
select pg_notify('jobwell.wake', '') where exists (select from jobwell.workers w where w.idle);

-- name: held
-- Queues that are held now; '*' is all of them.
select name, paused_at, paused_by, paused_why, paused_until from jobwell.queues
 where paused_until is null or paused_until > (select jobwell.now()) order by name;

-- name: forget
delete from jobwell.queues where paused_until <= (select jobwell.now());

-- name: known
-- Queues that somebody serves, declares, uses or holds.
with recursive hop as (
  (select queue from jobwell.jobs where state = 'ready' order by queue limit 1)
  union all
  select n.queue from hop h cross join lateral (
    select j.queue from jobwell.jobs j where j.state = 'ready' and j.queue > h.queue order by j.queue limit 1) n)
select queue from (select queue from hop limit 500) found
union select unnest(w.queues) from jobwell.workers w where w.state <> 'dead'
union select c.spec ->> 'queue' from jobwell.catalog c where c.spec ->> 'queue' is not null
union select q.name from jobwell.queues q where q.name <> '*'
order by 1;

-- name: seen
-- Whether any job is of this queue, and of this task: asked only where nobody declares them.
select :queue::text is null or exists (select from jobwell.jobs where queue = :queue) or exists (select from jobwell.quarantine where queue = :queue)
         or exists (select from jobwell.finished where queue = :queue),
       :task::text is null or exists (select from jobwell.jobs where task = :task) or exists (select from jobwell.quarantine where task = :task)
         or exists (select from jobwell.finished where task = :task);

-- name: cancel
select id, outcome from jobwell.cancel(:ids::uuid[], :actor, :why);

-- name: orders
-- What a worker is told: jobs to stop, and what it is asked itself.
select id, claim_id, null as asked from jobwell.cancels_of(:worker)
union all
select null, null, w.asked from jobwell.workers w where w.id = :worker and w.asked is not null;

-- name: ask
update jobwell.workers set asked = :what where id = any (:workers::uuid[]) and state <> 'dead' returning id;

-- name: run_now
-- Jobs that wait for another attempt become ready; their failures stay counted.
with chosen as (
  select j.id from jobwell.jobs j where j.id = any (:ids::uuid[]) and j.state = 'retrying' order by j.id for update skip locked),
moved as (
  update jobwell.jobs j set state = 'ready', ready_at = (select jobwell.now()), run_at = (select jobwell.now())
    from chosen c where j.id = c.id returning j.id, j.queue)
select m.id, jobwell.wake(array[m.queue]) from moved m;

-- name: reprioritize
-- What waits gets another rank. A claim under way is waited for, since it may have taken the job; claims themselves pass by.
with chosen as (
  select j.id from jobwell.jobs j where j.id = any (:ids::uuid[]) and j.state <> 'running' order by j.id for update),
moved as (
  update jobwell.jobs j set rank = :rank::smallint from chosen c where j.id = c.id and j.rank <> :rank::smallint)
select id from chosen;

-- name: count_live
select count(*) from jobwell.jobs j
 where (:until::timestamptz is null or j.enqueued_at <= :until) and (:ids::uuid[] is null or j.id = any (:ids))
   and (:state::text is null or j.state = :state or (:state = 'not running' and j.state <> 'running')) and (:queue::text is null or j.queue = :queue)
   and (:task::text is null or j.task = :task) and (:tenant::text is null or j.tenant = :tenant);

-- name: pick_live
select j.id from jobwell.jobs j
 where (:until::timestamptz is null or j.enqueued_at <= :until) and (:ids::uuid[] is null or j.id = any (:ids))
   and (:state::text is null or j.state = :state or (:state = 'not running' and j.state <> 'running')) and (:queue::text is null or j.queue = :queue)
   and (:task::text is null or j.task = :task) and (:tenant::text is null or j.tenant = :tenant)
   and j.id > :after
 order by j.id limit :limit;

-- name: pick_failed
select q.id from jobwell.quarantine q
 where (:until::timestamptz is null or q.failed_at <= :until) and (:ids::uuid[] is null or q.id = any (:ids))
   and (:reason::text is null or q.reason = :reason) and (:fingerprint::text is null or q.fingerprint = :fingerprint)
   and (:queue::text is null or q.queue = :queue) and (:task::text is null or q.task = :task)
   and (:tenant::text is null or q.tenant = :tenant) and q.id > :after
 order by q.id limit :limit;

-- name: begin
insert into jobwell.bulk_actions (id, actor, verb, chosen, total, why, args)
values (:id, :actor, :verb, :chosen::json, :total::integer, :why, :args::json) returning id;

-- name: brief
-- For this transaction: one that stands still with locks on jobs (a frozen host) is ended by the server.
select set_config('idle_in_transaction_session_timeout', '10s', true);

-- name: take
-- One driver at a time: another one finds the row locked, and leaves it alone.
select verb, actor, why, chosen, after_id, done, (args ->> 'to')::integer, (args ->> 'pace')::float8, (args ->> 'start')::timestamptz,
       args ->> 'edit', (args ->> 'limit')::integer
  from jobwell.bulk_actions where id = :id and state = 'open' for update skip locked;

-- name: move
update jobwell.bulk_actions
   set after_id = :after, done = done + :count::integer, beat_at = jobwell.now(),
       args = case when :start::timestamptz is null then args else (args::jsonb || jsonb_build_object('start', :start::timestamptz))::json end,
       state = case when :last then 'done' else state end, ended_at = case when :last then jobwell.now() end
 where id = :id;

-- name: abandoned
-- Begun, and not moved for a while: whoever drove them is gone.
select id from jobwell.bulk_actions
 where state = 'open' and beat_at < (select jobwell.now()) - make_interval(secs => :seconds) and id <> all (:but::uuid[])
 order by beat_at limit 1;

-- name: stop
update jobwell.bulk_actions set state = 'stopped', ended_at = jobwell.now() where id = :id and state = 'open' returning id;

-- name: actions
select id, at, actor, verb, chosen, total, done, state, why, beat_at, ended_at, (args ->> 'to')::integer as to
  from jobwell.bulk_actions
 where (:id::uuid is null or id = :id) order by at desc limit :limit;

-- name: unknown
select queue, rank, gate, task, jobs, since, extract(epoch from jobwell.now() - since)::float8 as waits from jobwell.unknown(:cap::integer);

-- name: give_up_unknown
select jobwell.give_up_unknown(:queue, :rank::smallint, :gate::bigint, :seconds::float8, :limit::integer);

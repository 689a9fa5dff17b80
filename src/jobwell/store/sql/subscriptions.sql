-- name: add
-- Its two marks begin now: what has failed before is not told.
insert into jobwell.report_subscriptions (filters, group_by, form, recipients, even_empty, daily, zone, threshold, within, made_by, why, next_daily, look_at)
values (:filters::jsonb, :group_by, :form, :recipients::text[], :even_empty, :daily::time, :zone, :threshold, :within, :actor, :why,
        :next_daily::timestamptz, :look_at::timestamptz)
returning id;

-- name: list
-- All, or one; with the time by which it is judged how late one is.
select s.id, s.filters::text, s.group_by, s.form, s.recipients, s.even_empty, s.daily, s.zone, s.threshold, s.within, s.made_at, s.made_by,
       s.why, s.paused_at, s.paused_by, s.daily_since, s.told_until, s.alarmed_at, s.next_daily, s.look_at, s.pending_kind,
       s.pending_since, s.pending_until, s.pending_done, s.failures, s.last_error, s.last_error_at, s.last_sent, s.test_asked, s.test_by,
       jobwell.now() as now
  from jobwell.report_subscriptions s where :id::bigint is null or s.id = :id order by s.id;

-- name: remove
delete from jobwell.report_subscriptions where id = :id returning id;

-- name: pause
update jobwell.report_subscriptions set paused_at = (select jobwell.now()), paused_by = :actor where id = :id and paused_at is null returning id;

-- name: resume
-- Looked at soon. What failed meanwhile is part of the next daily report.
update jobwell.report_subscriptions set paused_at = null, paused_by = null, look_at = (select jobwell.now())
 where id = :id and paused_at is not null returning id;

-- name: ask
-- For a test. Returns the last row of the log, behind which the answer will stand.
update jobwell.report_subscriptions set test_asked = (select jobwell.now()), test_by = :actor where id = :id
returning coalesce((select max(l.id) from jobwell.report_log l), 0);

-- name: unask
-- Nobody has taken it up. No row: somebody has.
update jobwell.report_subscriptions set test_asked = null, test_by = null
 where id = :id and test_asked is not null and (claimed_until is null or claimed_until <= (select jobwell.now())) returning id;

-- name: log
select id, at, kind, since, until, jobs, recipients, worker, error from jobwell.report_log
 where subscription = :id and id > :after order by id desc limit :limit;

-- name: take
-- Lease one that is due, or of which somebody wants a test; what has a recipient without an @ needs a worker with a hook.
-- Two that ask at once get two different ones, or one of them nothing.
update jobwell.report_subscriptions s
   set claim = :claim, claimed_until = (select jobwell.now()) + make_interval(secs => :lease)
 where s.id = any (array(
   select d.id from jobwell.report_subscriptions d
    where (d.test_asked is not null or (d.paused_at is null and d.look_at <= (select jobwell.now())))
      and (d.claimed_until is null or d.claimed_until <= (select jobwell.now()))
      and (:hook or not exists (select from unnest(d.recipients) r where position('@' in r) = 0))
    order by d.test_asked nulls last, d.look_at, d.id limit 1 for update skip locked))
returning s.id, s.filters::text, s.group_by, s.form, s.recipients, s.even_empty, s.daily, s.zone, s.threshold, s.within, s.made_at, s.made_by,
       s.why, s.paused_at, s.paused_by, s.daily_since, s.told_until, s.alarmed_at, s.next_daily, s.look_at, s.pending_kind,
       s.pending_since, s.pending_until, s.pending_done, s.failures, s.last_error, s.last_error_at, s.last_sent, s.test_asked, s.test_by,
       jobwell.now() as now;

-- name: begin
-- Write down what is about to be sent. Whoever comes after a crash sends the same.
update jobwell.report_subscriptions set pending_kind = :kind, pending_since = :since, pending_until = :until, pending_done = '{}'
 where id = :id and claim = :claim returning id;

-- name: settle
-- It is through, or there was nothing to send. An error stays until something is sent. The log is cut to its time in passing.
with done as (
  update jobwell.report_subscriptions s
     set claim = null, claimed_until = null, pending_kind = null, pending_since = null, pending_until = null, pending_done = '{}',
         failures = 0, last_error = case when :sent or s.failures > 0 then :error::text else s.last_error end,
         last_error_at = case when :sent or s.failures > 0 then case when :error::text is not null then (select jobwell.now()) end
                              else s.last_error_at end,
         last_sent = case when :sent then (select jobwell.now()) else s.last_sent end,
         daily_since = :daily_since, told_until = :told_until, alarmed_at = :alarmed_at, next_daily = :next_daily, look_at = :look_at
   where s.id = :id and s.claim = :claim returning s.id, s.recipients),
old as (
  delete from jobwell.report_log where :sent and id = any (array(
    select l.id from jobwell.report_log l where l.at < (select jobwell.now()) - make_interval(days => :days) order by l.id limit 100))),
told as (
  insert into jobwell.report_log (subscription, kind, since, until, jobs, recipients, worker, error)
  select d.id, :kind::text, :since::timestamptz, :until::timestamptz, :jobs::integer, d.recipients, :worker::uuid, :error::text from done d where :sent)
select id from done;

-- name: fail
-- It did not go through: tried again later. Recipients that have it do not get it again.
update jobwell.report_subscriptions
   set claim = null, claimed_until = null, failures = failures + 1, last_error = :error, last_error_at = (select jobwell.now()),
       pending_done = :done::text[], look_at = (select jobwell.now()) + make_interval(secs => :pause)
 where id = :id and claim = :claim returning id;

-- name: tested
-- How a test went. The subscription goes on as if it had not been.
with done as (
  update jobwell.report_subscriptions set claim = null, claimed_until = null, test_asked = null, test_by = null
   where id = :id and claim = :claim returning id, recipients)
insert into jobwell.report_log (subscription, kind, since, until, jobs, recipients, worker, error)
select d.id, 'test', :since::timestamptz, :until::timestamptz, :jobs::integer, d.recipients, :worker::uuid, :error::text from done d returning id;

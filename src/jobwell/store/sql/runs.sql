-- name: create
-- A new run; none where its key is taken.
insert into jobwell.runs (id, operation, run_key, tenant, params, meta, canary, held, on_bad, version, expected, started_by, changed_by, why)
values (:id::uuid, :operation, :key, :tenant, :params::json, :meta::json, :canary::jsonb, false, :on_bad, :version::integer,
        :expected::bigint, :by, :by, :why)
on conflict (operation, run_key) where not refused do nothing returning id;

-- name: by_key
select id from jobwell.runs where operation = :operation and run_key = :key and not refused;

-- name: add_stage
insert into jobwell.run_stages (run_id, stage, kind, name, after, condition, chunk, room, state, task, queue, rank, gate, deadline)
values (:run::uuid, :stage::smallint, :kind, :name, :after::smallint, :condition, :chunk::integer, :room::integer,
        case :kind::text when 'items' then 'open' else 'waiting' end, :task, :queue, :rank::smallint, :gate::bigint, :deadline::float8);

-- name: prepare
-- Its preparation becomes a job: once, and again where it has failed.
update jobwell.run_stages t set state = 'enqueued', message = null, ended_at = null, job_id = jobwell.run_enqueue(t.run_id, t.stage)
 where t.run_id = :run and t.kind = 'prepare' and t.state in ('waiting', 'failed') returning t.job_id;

-- name: begin_part
-- Whether this job is the one that a preparation or a finish waits for.
select jobwell.run_begin(:run, :stage::smallint, :job, :claim);

-- name: end_part
update jobwell.run_stages t set state = 'done', ended_at = jobwell.now()
 where t.run_id = :run and t.stage = :stage::smallint and t.job_id = :job and t.state = 'enqueued'
   and exists (select from jobwell.jobs j where j.id = :job and j.claim_id = :claim for no key update);

-- name: reserve
-- Numbers for a block of items; no row: the run takes none any more.
update jobwell.runs r set next_no = r.next_no + :n::bigint where r.id = :run and not r.sealed and not r.cancelled
returning r.next_no - :n::bigint;

-- name: copy_items
-- Its lines are UTF-8, whatever the connection speaks.
copy jobwell.run_items (run_id, no, key, data) from stdin (encoding 'UTF8');

-- name: insert_items
-- The same where some are there already. Returns the numbers of the new ones.
insert into jobwell.run_items (run_id, no, key, data)
select :run::uuid, g.no, g.key, g.data::jsonb from unnest(:nos::bigint[], :keys::text[], :data::text[]) g(no, key, data) order by g.key
on conflict (run_id, key) do nothing returning no;

-- name: there_before
-- How many of these keys were there before a number was given out.
select count(*) from jobwell.run_items i where i.run_id = :run and i.key = any (:keys::text[]) and i.no < :before::bigint;

-- name: stored
-- A block is in: counted, and in lots for the stages that come first. No row: sealed or cancelled meanwhile. What does not fit in an
-- input that is read from its start is counted by the reader that has come furthest, as several may read it; nothing is taken back.
with r as (
  update jobwell.runs r
     set items = r.items + cardinality(:nos::bigint[]),
         duplicates = case when :again::boolean then greatest(r.duplicates, :duplicates::bigint) else r.duplicates + :duplicates::bigint end,
         bad = case when :again::boolean then greatest(r.bad, :bad::bigint) else r.bad + :bad::bigint end
   where r.id = :run and not r.sealed and not r.cancelled returning r.id, r.on_bad, r.canary),
lots as (
  insert into jobwell.run_lots (run_id, stage, held, n, nos)
  select r.id, q.stage, r.on_bad = 'stop' or r.canary is not null, count(*), array_agg(q.no order by q.no)
    from r, (select t.stage, u.no, (row_number() over (partition by t.stage order by u.no) - 1) / coalesce(nullif(t.chunk, 0), 100) as piece
               from jobwell.run_stages t, unnest(:nos::bigint[]) u(no)
              where t.run_id = :run and t.kind = 'items' and t.after is null) q
   group by r.id, r.on_bad, r.canary, q.stage, q.piece order by q.stage, q.piece)
select r.id from r;

-- name: add_bad
insert into jobwell.run_bad_rows (run_id, row, field, reason, value)
select :run::uuid, g.row, g.field, g.reason, g.value from unnest(:rows::bigint[], :fields::text[], :reasons::text[], :values::text[]) g(row, field, reason, value)
on conflict do nothing;

-- name: bad_rows
select id, row, field, reason, value from jobwell.run_bad_rows
 where run_id = :run and (row, id) > (:after_row::bigint, :after_id::bigint) order by row, id limit :limit;

-- name: seal
select jobwell.run_seal(:run);

-- name: load
select * from jobwell.run_load(:jobs::uuid[], :runs::uuid[], :stages::smallint[], :firsts::bigint[], :lasts::bigint[]);

-- name: record
select * from jobwell.run_record(:jobs::uuid[], :claims::uuid[], :runs::uuid[], :stages::smallint[], :nos::bigint[], :states::text[],
  :codes::text[], :messages::text[], :delays::float8[], :rest_jobs::uuid[], :rest_args::text[]);

-- name: turn
select jobwell.run_turn(:run);

-- name: to_look_at
-- Active runs that nobody has looked at for a moment; whoever gets them looks. Those that cannot move by themselves (paused, or waiting
-- for more items) are looked at thirty times less often, so that many of them do not hold up the others.
update jobwell.runs r set looked_at = jobwell.now()
 where r.id = any (array(
   select n.id from jobwell.runs n cross join (select jobwell.now() as now offset 0) c
    where n.active and n.looked_at < c.now - make_interval(secs => :every::float8)
      and (n.cancelled or n.looked_at < c.now - make_interval(secs => 30 * :every::float8)
           or (n.state <> 'paused'
               and (n.sealed or exists (select from jobwell.run_lots l where l.run_id = n.id and not l.held)
                    or exists (select from jobwell.run_counts x where x.run_id = n.id having sum(x.out) <> 0)
                    or exists (select from jobwell.run_stages t where t.run_id = n.id and t.kind = 'prepare' and t.state in ('enqueued', 'failed')))))
    order by n.looked_at limit 20 for update of n skip locked))
returning r.id, r.state <> 'paused' and r.moved_at < jobwell.now() - make_interval(secs => :still::float8);

-- name: rescue
select jobwell.run_rescue(:run);

-- name: facts
select r.operation, r.run_key, r.params::text, r.started_by, r.tenant, r.secret from jobwell.runs r where r.id = :run;

-- name: card
-- What stands on the card of a run.
select r.id, r.operation, r.run_key, r.tenant, r.state, r.sealed, r.refused, r.active, r.cancelled, r.held, r.items, r.duplicates, r.bad, r.expected,
       r.started_by, r.changed_by, r.why, r.created_at, r.started_at, r.ended_at, jobwell.now()
  from jobwell.runs r where r.id = :run;

-- name: card_stages
-- Its parts with their counters, from the states of the items.
select t.stage, t.kind, t.name, t.after, t.state, t.condition, t.task, t.message, t.job_id, t.chunk, t.mark_at, t.mark, t.speed, t.ended_at,
       c.out, c.done, c.failed, c.skipped, c.cancelled, c.accepted, c.delivered, c.bounced
  from jobwell.run_stages t cross join lateral (
    select coalesce(sum(x.out), 0)::bigint as out, coalesce(sum(x.done), 0)::bigint as done, coalesce(sum(x.failed), 0)::bigint as failed,
           coalesce(sum(x.skipped), 0)::bigint as skipped, coalesce(sum(x.cancelled), 0)::bigint as cancelled,
           coalesce(sum(x.accepted), 0)::bigint as accepted, coalesce(sum(x.delivered), 0)::bigint as delivered,
           coalesce(sum(x.bounced), 0)::bigint as bounced
      from jobwell.run_counts x where x.run_id = t.run_id and x.stage = t.stage) c
 where t.run_id = :run order by t.stage;

-- name: running
-- Items that running jobs hold, by stage.
select (j.args ->> 'stage')::smallint, sum((s.value ->> 1)::bigint - (s.value ->> 0)::bigint + 1)::bigint
  from (select coalesce(j.args, (select p.args from jobwell.payloads p where p.id = j.id)) as args from jobwell.jobs j
         where j.state = 'running' and j.task = any (:tasks)) j, json_array_elements(j.args -> 'spans') s
 where j.args ->> 'bulk_run' = :run::uuid::text group by 1;

-- name: recount
-- The same counters from the rows of the items; for checks.
select s.stage, count(*) filter (where s.state = 'done'), count(*) filter (where s.state = 'failed'), count(*) filter (where s.state = 'skipped'),
       count(*) filter (where s.state = 'cancelled')
  from jobwell.run_states s where s.run_id = :run group by s.stage order by s.stage;

-- name: errors
-- Failed items, page by page.
with page as materialized (
  select s.* from jobwell.run_states s
   where s.run_id = :run and s.state = 'failed' and (s.stage, s.no) > (:after_stage::smallint, :after_no::bigint)
     and (:code::text is null or s.code = :code)
   order by s.stage, s.no limit :limit)
select p.stage, t.name, p.no, i.key, p.code, p.message, p.attempt, p.at, i.data
  from page p join jobwell.run_stages t on t.run_id = p.run_id and t.stage = p.stage
 cross join lateral (select x.key, x.data::text as data from jobwell.run_items x where x.run_id = p.run_id and x.no = p.no offset 0) i
 order by p.stage, p.no;

-- name: reasons
select t.name, s.code, count(*) from jobwell.run_states s join jobwell.run_stages t on t.run_id = s.run_id and t.stage = s.stage
 where s.run_id = :run and s.state = 'failed' group by t.name, s.code order by 3 desc, 1, 2 limit :limit;

-- name: item
-- What became of one item, stage by stage.
select t.name, s.state, s.code, s.message, s.attempt, s.at, s.delivery, s.delivery_at
  from jobwell.run_items i join jobwell.run_stages t on t.run_id = i.run_id and t.kind = 'items'
  left join jobwell.run_states s on s.run_id = i.run_id and s.stage = t.stage and s.no = i.no
 where i.run_id = :run and i.key = :key order by t.stage;

-- name: list
select r.id, r.operation, r.run_key, r.state, r.items, r.started_by, r.created_at, r.ended_at from jobwell.runs r
 where (:operation::text is null or r.operation = :operation) and (:state::text is null or r.state = :state)
   and (:before::timestamptz is null or r.created_at < :before) order by r.created_at desc, r.id desc limit :limit;

-- name: pause
update jobwell.runs set state = 'paused', changed_by = :by, why = :why
 where id = :run and state in ('queued', 'running') and not cancelled returning id;

-- name: resume
-- Behind a canary that is over nothing goes on but by `let_go`.
update jobwell.runs r
   set state = case when r.started_at is null then 'queued' else 'running' end, changed_by = :by, why = :why, moved_at = jobwell.now()
 where r.id = :run and r.state = 'paused' and not r.cancelled
   and (not r.held or not r.sealed or exists (select from jobwell.run_lots l where l.run_id = r.id and not l.held)
        or exists (select from jobwell.run_counts c where c.run_id = r.id having sum(c.out) <> 0))
returning r.id;

-- name: let_go
-- The rest behind a canary.
with r as (
  update jobwell.runs
     set state = case when started_at is null then 'queued' else 'running' end, held = false, changed_by = :by, why = :why, moved_at = jobwell.now()
   where id = :run and held and sealed and state in ('queued', 'running', 'paused') and not cancelled returning id)
update jobwell.run_lots l set held = false from r where l.run_id = r.id and l.held returning r.id;

-- name: cancel
update jobwell.runs set cancelled = true, state = 'cancelled', active = true, ended_at = jobwell.now(), changed_by = :by, why = :why
 where id = :run and state in ('queued', 'running', 'paused') and not cancelled returning id;

-- name: cancel_jobs
select jobwell.run_cancel_jobs(:run, :by, :why, :limit::integer);

-- name: count_failed
select count(*) from jobwell.run_failed(:run, :stage::text, :code::text, :keys::text[]);

-- name: retry
select jobwell.run_retry(:run, :stage::text, :code::text, :keys::text[], :by::text, :why::text);

-- name: deliver
select jobwell.run_deliver(:run, :stage::smallint, :no::bigint, :state::text, :message::text);

-- name: old
select r.id from jobwell.runs r where not r.active and r.ended_at < (select jobwell.now()) - make_interval(secs => :seconds::float8)
 order by r.ended_at limit 1;

-- name: forget_items
with gone as (
  delete from jobwell.run_items where ctid = any (array(select ctid from jobwell.run_items where run_id = :run limit :limit)) returning 1)
select count(*) from gone;

-- name: forget_states
with gone as (
  delete from jobwell.run_states where ctid = any (array(select ctid from jobwell.run_states where run_id = :run limit :limit)) returning 1)
select count(*) from gone;

-- name: forget_bad_rows
with gone as (
  delete from jobwell.run_bad_rows where ctid = any (array(select ctid from jobwell.run_bad_rows where run_id = :run limit :limit)) returning 1)
select count(*) from gone;

-- name: forget_rest
-- Several may forget at once: what another has taken and not committed yet is still there, and its next piece is not ours to drop.
with gone as (
  delete from jobwell.runs r
   where r.id = :run and not r.active and not exists (select from jobwell.run_items x where x.run_id = r.id)
     and not exists (select from jobwell.run_states x where x.run_id = r.id)
     and not exists (select from jobwell.run_bad_rows x where x.run_id = r.id)
  returning r.id),
lots as (delete from jobwell.run_lots l using gone g where l.run_id = g.id),
counts as (delete from jobwell.run_counts c using gone g where c.run_id = g.id),
stages as (delete from jobwell.run_stages t using gone g where t.run_id = g.id)
select count(*) from gone where :limit::integer > 0;

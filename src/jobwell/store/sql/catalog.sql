-- name: publish
-- What a worker that starts declares. In the order of names, so that workers that start together do not wait for each other
-- in a circle; a row that says the same already is touched once an hour.
with mine as (
  update jobwell.workers set tasks = :known where id = :worker),
told as (
  insert into jobwell.catalog as c (task, spec, release, seen_at)
  select g.task, g.spec::json, :release, jobwell.now() from unnest(:tasks::text[], :specs::text[]) g(task, spec) order by g.task
  on conflict (task) do update set spec = excluded.spec, release = excluded.release, seen_at = excluded.seen_at
    where c.spec::text <> excluded.spec::text or c.release <> excluded.release or c.seen_at < excluded.seen_at - interval '1 hour'
  returning 1)
select count(*)::integer from told;

-- name: one
select spec::text, release, seen_at from jobwell.catalog where task = :task;

-- name: names
select task from jobwell.catalog order by task limit :limit;

-- name: queues
-- Queues that somebody knows: a worker serves them, or a task names them.
select unnest(queues) as queue from jobwell.workers where state <> 'dead'
union
select spec ->> 'queue' from jobwell.catalog
order by 1;

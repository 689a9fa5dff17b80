-- name: tables
-- Each table with its partitions as one. Rows are the statistics' estimate: counting would read them all.
with part as (
  select c.oid, coalesce(p.relname, c.relname) as name from pg_class c
    left join pg_inherits i on i.inhrelid = c.oid left join pg_class p on p.oid = i.inhparent
   where c.relnamespace = (select relnamespace from pg_class where oid = 'jobwell.store'::regclass) and c.relkind = 'r')
select t.name, sum(case when s.n_live_tup > 0 then s.n_live_tup else greatest(c.reltuples, 0)::bigint end)::bigint as rows,
       sum(pg_total_relation_size(t.oid))::bigint as bytes, sum(pg_indexes_size(t.oid))::bigint as index_bytes,
       coalesce(sum(s.n_dead_tup), 0)::bigint as dead, max(greatest(s.last_vacuum, s.last_autovacuum)) as vacuumed_at
  from part t join pg_class c on c.oid = t.oid left join pg_stat_all_tables s on s.relid = t.oid
 group by t.name order by bytes desc, t.name;

-- name: oldest_day
-- The day of the oldest finished job, from the names of the partitions that hold rows and from the default one's index.
select min(day) from (
  select to_date(right(c.relname, 8), 'YYYYMMDD') as day from pg_inherits i join pg_class c on c.oid = i.inhrelid
    left join pg_stat_all_tables s on s.relid = c.oid
   where i.inhparent = 'jobwell.finished'::regclass and c.relname ~ '_[0-9]{8}$' and (s.n_live_tup > 0 or c.reltuples > 0)
  union all
  select (min(finished_at) at time zone 'utc')::date from jobwell.finished_default) d;

-- name: pinning
-- What keeps vacuum from removing dead rows: the oldest snapshot of a session, a prepared transaction, a replication slot.
select who, age, seconds from (
  select 'session ' || pid || coalesce(' (' || nullif(application_name, '') || ')', '') || coalesce(' of ' || usename, '') as who,
         age(backend_xmin) as age, extract(epoch from clock_timestamp() - xact_start)::float8 as seconds
    from pg_stat_activity where backend_xmin is not null and pid <> pg_backend_pid() and backend_type <> 'autovacuum worker'
  union all
  select 'prepared transaction ' || gid, age(transaction), extract(epoch from clock_timestamp() - prepared)::float8 from pg_prepared_xacts
  union all
  select 'replication slot ' || slot_name, greatest(age(xmin), age(catalog_xmin)), null from pg_replication_slots
   where xmin is not null or catalog_xmin is not null) p
 order by age desc limit 1;

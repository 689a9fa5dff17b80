-- name: tables
-- The tables of this store with the columns that are copied, parents of partitions in their place; the ledger stays where it is.
select c.relname, array_agg(a.attname::text order by a.attnum)
  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
 where c.relnamespace = (select relnamespace from pg_class where oid = 'jobwell.store'::regclass) and c.relkind in ('r', 'p') and not c.relispartition and c.relname not in ('migrations', 'moved')
 group by c.relname order by c.relname;

-- name: partitions
select p.relname, c.relname, pg_get_expr(c.relpartbound, c.oid) from pg_inherits i
  join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
 where p.relkind = 'p' and p.relnamespace = (select relnamespace from pg_class where oid = 'jobwell.store'::regclass) order by 1, 2;

-- name: sequences
select a.attrelid::regclass::text, a.attname, pg_get_serial_sequence(a.attrelid::regclass::text, a.attname) from pg_attribute a
  join pg_class c on c.oid = a.attrelid
 where c.relnamespace = (select relnamespace from pg_class where oid = 'jobwell.store'::regclass) and c.relkind in ('r', 'p') and a.attidentity <> '' and not a.attisdropped;

-- name: live_workers
select name from jobwell.workers where state <> 'dead' and lease_until > jobwell.now() order by name limit 5;

-- name: patience
-- For the transaction that waits while everything is copied: only its locks have a limit. Bounds are read as ISO.
select set_config('lock_timeout', '5s', true), set_config('statement_timeout', '0', true),
       set_config('idle_in_transaction_session_timeout', '0', true), set_config('datestyle', 'ISO', true),
       set_config('jobwell.moving', 'on', true);

-- name: rights
-- What closing needs: to rename the schema and to make another one in its place.
select has_database_privilege(current_database(), 'create'), pg_has_role(nspowner, 'usage') from pg_namespace where nspname = :schema;

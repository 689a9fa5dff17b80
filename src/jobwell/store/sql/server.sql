-- name: facts
-- What `jobwell doctor` shows and judges.
select current_setting('server_version_num')::integer as version, current_setting('server_version') as version_text,
       current_setting('fsync') as fsync, current_setting('synchronous_commit') as synchronous_commit,
       current_setting('synchronous_standby_names') as synchronous_standby_names,
       current_setting('max_connections')::integer as max_connections, current_setting('shared_buffers') as shared_buffers,
       current_setting('server_encoding') as encoding, current_setting('autovacuum') as autovacuum,
       current_setting('idle_in_transaction_session_timeout') as idle_in_transaction_session_timeout,
       pg_is_in_recovery() as replica, current_database() as database, current_user as "user",
       has_database_privilege(current_database(), 'create') as may_create,
       current_setting('default_transaction_isolation') as isolation, current_setting('default_transaction_read_only') as read_only,
       extract(epoch from clock_timestamp())::float8 as epoch;

-- name: fitness
-- What a worker cannot live with, before it claims anything.
select current_setting('default_transaction_isolation'), current_setting('default_transaction_read_only') = 'on' or pg_is_in_recovery(),
       current_setting('server_encoding');

-- name: oldest_transaction
-- The transaction that holds back vacuum, and so makes claims walk over dead entries.
select pid, usename, application_name, extract(epoch from clock_timestamp() - xact_start)::float8 as age, left(query, 200) as query
  from pg_stat_activity
 where xact_start is not null and backend_type = 'client backend' and pid <> pg_backend_pid() and datname = current_database()
 order by xact_start limit 1;

-- name: connections
select count(*) from pg_stat_activity where backend_type = 'client backend';

-- name: identity
select case when to_regclass('jobwell.store') is null then null else 1 end;

-- name: store_id
-- As text: it is also read over connections whose types the caller has changed.
select id::text from jobwell.store;

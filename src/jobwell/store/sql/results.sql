-- name: look
-- How these jobs stand now, the live ones first.
select place, id, state, task, attempt, result, note, reason, code, error_type, message from jobwell.look(:ids::uuid[], :expired) order by place;

-- name: finish_expiring
select jobwell.finish_expiring(:ids::uuid[], :claims::uuid[], :results::text[], :notes::text[], :seconds::float8[]);

-- name: expire
select jobwell.expire_results(:limit::integer, :note);

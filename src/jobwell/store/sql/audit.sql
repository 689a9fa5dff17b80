-- name: record
insert into jobwell.audit (actor, action, target, detail) values (:actor, :action, :target, :detail::json);

-- name: list
select id, at, actor, action, target, detail::text from jobwell.audit order by id desc limit :limit;

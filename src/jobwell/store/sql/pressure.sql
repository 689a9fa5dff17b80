-- name: lengths
-- Of queues with a limit: the length up to the cap, for how many seconds it stands, and how old it is.
select q.queue, l.length, l.fresh_for, l.age
  from unnest(:queues::text[], :caps::integer[]) q(queue, cap) cross join lateral jobwell.queue_length(q.queue, q.cap) l;

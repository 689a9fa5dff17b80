-- version: 1
-- Drop one daily partition of one table. False: somebody reads or writes there, and it is left for another time.
-- One statement with a short lock timeout of its own: a DROP that waits makes everyone behind it wait.
create or replace function jobwell.drop_day(p_table text, p_day text) returns boolean
language plpgsql volatile
set lock_timeout = '50ms'
as $$
begin
  if p_day !~ ('^' || p_table || '_[0-9]{8}$') or not exists (
      select from pg_inherits where inhparent = format('jobwell.%I', p_table)::regclass and inhrelid = to_regclass(format('jobwell.%I', p_day))) then
    return true;  -- it is gone already
  end if;
  execute format('drop table jobwell.%I', p_day);
  return true;
exception
  when lock_not_available or deadlock_detected then
    return false;
end $$;

-- One pruner at a time: whoever removes old rows takes this lease in the same commit as each piece.
-- Runs before the code of the same release is deployed; older workers prune without asking, as they always did.
create table jobwell.upkeep (
  name     text collate "C" primary key,
  holder   uuid not null,                                   -- fresh for each run
  who      text not null,
  taken_at timestamptz not null default jobwell.now(),
  until    timestamptz not null
);

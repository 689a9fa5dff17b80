"""Upkeep of the tables: partitions ahead, and old rows out, in small commits."""

import uuid

from jobwell.store import results
from jobwell.store.statements import Program, Statements

PIECE = 1000
DAYS_AHEAD = 7


class UpkeepVerbs:
    """Programs of upkeep.

    Those that alter tables give up after a lock timeout of 50 ms: a DROP that waits makes everyone behind it wait.
    """

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    def make_partitions(self) -> Program[int]:
        """The days ahead."""
        rows = yield self._statements("upkeep.partitions", ahead=DAYS_AHEAD)
        return int(rows[0][0])

    def drop_old(self, table: str, *, seconds: float) -> Program[int]:
        """Whole days that ended so long ago."""
        rows = yield self._statements("upkeep.drop_old", table=table, seconds=seconds)
        return int(rows[0][0])

    def delete_old(self, *, seconds: float) -> Program[bool]:
        """A piece of what fell into the default partitions. True: there may be more."""
        finished = yield self._statements("upkeep.delete_old_finished", seconds=seconds, limit=PIECE)
        attempts = yield self._statements("upkeep.delete_old_attempts", seconds=seconds, limit=PIECE)
        return PIECE in (finished[0][0], attempts[0][0])

    def expire_results(self) -> Program[bool]:
        """A piece of the results that are kept no longer. True: there may be more."""
        return results.expire(self._statements)

    def delete_payloads(self, *, after: uuid.UUID, seconds: float) -> Program[tuple[int, uuid.UUID | None]]:
        """A piece of the payloads whose jobs are gone. Returns how many were looked at, and where the walk goes on."""
        rows = yield self._statements("upkeep.delete_payloads", after=after, seconds=seconds, limit=PIECE)
        looked, _deleted, last = rows[0]
        return int(looked), last

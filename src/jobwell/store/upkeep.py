"""Upkeep of the tables: partitions ahead, and old rows out, in small commits."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from jobwell.core.duration import text
from jobwell.store import audit, checkpoints, dedup, follow, limits, quarantine, results, steps
from jobwell.store.statements import Program, Statements

PIECE = 1000
PIECE_OF_HITS = 5000
PIECE_OF_USES = 500  # each is locked for its moment
DAYS_AHEAD = 7
LEASE = 5.0  # seconds: taken anew with each piece, so it covers the rest between two of them


@dataclass(frozen=True, slots=True)
class Pruner:
    """Who prunes.

    Attributes:
        holder: fresh for each run.
        who: for people.
    """

    holder: uuid.UUID
    who: str

    def parameters(self) -> dict[str, object]:
        """Of the lease."""
        return {"holder": self.holder, "who": self.who, "lease": LEASE}


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

    def lease(self, pruner: Pruner) -> Program[bool]:
        """Take or renew the right to prune, in the transaction of the piece that follows. False: somebody else has it.

        Sets a statement timeout of 5 s and a lock timeout of 100 ms for that transaction, and 10 s for standing still in it.
        """
        yield self._statements("upkeep.patience")
        return bool((yield self._statements("upkeep.lease", **pruner.parameters())))

    def give_back(self, pruner: Pruner) -> Program[None]:
        """The next one need not wait for the end of the lease."""
        yield self._statements("upkeep.give_back", holder=pruner.holder)

    def holder(self) -> Program[tuple[str, datetime, datetime, datetime] | None]:
        """Who prunes now: who, since when, until when the lease holds, and the time."""
        rows = yield self._statements("upkeep.holder")
        return (rows[0][0], rows[0][1], rows[0][2], rows[0][3]) if rows else None

    def old_days(self, *, seconds: float) -> Program[list[tuple[str, str]]]:
        """Whole days that ended so long ago, oldest first: (table, partition)."""
        rows = yield self._statements("upkeep.old_days", seconds=seconds)
        return [(row[0], row[1]) for row in rows]

    def drop_day(self, pruner: Pruner, table: str, day: str) -> Program[bool | None]:
        """Drop one of them. False: it is in use, try again later. None: somebody else prunes."""
        rows = yield self._statements("upkeep.drop_day", table=table, day=day, **pruner.parameters())
        return bool(rows[0][0]) if rows else None

    def delete_old(self, *, seconds: float) -> Program[tuple[int, int]]:
        """A piece of what fell into the default partitions: how many finished jobs, and how many attempts."""
        finished = yield self._statements("upkeep.delete_old_finished", seconds=seconds, limit=PIECE)
        attempts = yield self._statements("upkeep.delete_old_attempts", seconds=seconds, limit=PIECE)
        yield self._statements("upkeep.delete_old_edits", seconds=seconds, limit=PIECE)
        yield from follow.forget(self._statements, seconds=seconds, limit=PIECE)
        return int(finished[0][0]), int(attempts[0][0])

    def discard_old(self, *, seconds: float) -> Program[int]:
        """A piece of the failed jobs that nobody has decided on for so long: given up, with an audit row. Returns how many."""
        rows = yield self._statements("upkeep.old_failed", seconds=seconds, limit=PIECE)
        why = f"nobody has decided for {text(seconds)} (quarantine_keep)"
        gone = yield from quarantine.discard(self._statements, [row[0] for row in rows], actor="retention", why=why)
        if gone:
            detail = {"ids": gone, "why": why}
            record = audit.record(
                self._statements, actor="retention", action="quarantine.discard", target=f"{len(gone)} jobs", detail=detail
            )
            yield from record
        return len(gone)

    def expire_results(self) -> Program[bool]:
        """A piece of the results that are kept no longer. True: there may be more."""
        return results.expire(self._statements)

    def forget_set(self) -> Program[int]:
        """Holds and limits that operators had set for a time that is over."""
        return limits.forget(self._statements)

    def forget_uses(self) -> Program[int]:
        """A piece of what is written down about the use of limits, and needed no more."""
        return limits.forget_uses(self._statements, PIECE_OF_USES)

    def expire_keys(self) -> Program[int]:
        """A piece of the windows that are over. Returns how many."""
        return dedup.expire(self._statements, PIECE)

    def expire_void(self, after: str) -> Program[str | None]:
        """A piece of the windows whose jobs have left their work undone; where the walk goes on, None at its end."""
        return dedup.expire_void(self._statements, after, PIECE)

    def fold_hits(self, *, seconds: float) -> Program[int]:
        """A piece of the suppressed enqueues that are listed no more: into their counts. Returns how many."""
        return dedup.fold(self._statements, seconds, PIECE_OF_HITS)

    def delete_payloads(self, *, after: uuid.UUID, seconds: float) -> Program[tuple[int, int, uuid.UUID | None]]:
        """A piece of the payloads whose jobs are gone: how many were looked at and deleted, and where the walk goes on."""
        rows = yield self._statements("upkeep.delete_payloads", after=after, seconds=seconds, limit=PIECE)
        looked, deleted, last = rows[0]
        return int(looked), int(deleted), last

    def delete_steps(
        self, *, after: tuple[uuid.UUID, str], seconds: float
    ) -> Program[tuple[int, int, tuple[uuid.UUID, str] | None]]:
        """A piece of the steps whose jobs are gone: how many were looked at and deleted, and where the walk goes on."""
        return steps.prune(self._statements, after=after, seconds=seconds, limit=PIECE)

    def delete_kept(self, table: str, *, after: uuid.UUID) -> Program[tuple[int, int, uuid.UUID | None]]:
        """A piece of "checkpoints" or "progress" whose jobs have ended: as `delete_payloads`."""
        return checkpoints.delete_old(self._statements, table, after=after, limit=PIECE)

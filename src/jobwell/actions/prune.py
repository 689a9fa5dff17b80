"""Retention by hand: what workers do every ten minutes, now, in small commits that may be interrupted anywhere."""

import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from jobwell.core.errors import Conflict
from jobwell.core.ids import new_id
from jobwell.store import audit
from jobwell.store.database import Database, is_locked
from jobwell.store.statements import Program, T, run
from jobwell.store.upkeep import LEASE, PIECE, PIECE_OF_HITS, Pruner, UpkeepVerbs

LONGEST_REST = 0.2  # seconds between two pieces: as long as the piece took, so that the work beside it has half of the time
LOOK_AGAIN = 0.5


@dataclass
class Pruned:
    """What went.

    Attributes:
        windows, hits: of `Dedup`: those that are over, and suppressed enqueues that are counted and listed no more.
        days: partitions dropped whole.
        in_use: partitions that somebody reads or writes, and that were left.
        more: the time was over before the end.
    """

    finished: int = 0
    attempts: int = 0
    payloads: int = 0
    steps: int = 0
    windows: int = 0
    hits: int = 0
    days: list[str] = field(default_factory=list)
    in_use: list[str] = field(default_factory=list)
    more: bool = False


class Prune:
    """One run.

    Args:
        database: the store.
        keep: seconds for which finished jobs, and attempts, are kept.
        budget: seconds for all of it; what is left then is left for the next run.
        by: who acts.
        told: called after each piece.
        rest: how to rest between two pieces (tests do not).
    """

    def __init__(
        self,
        database: Database,
        *,
        keep: float,
        budget: float,
        by: str,
        told: Callable[[Pruned], None] = lambda _: None,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._database = database
        self._verbs = UpkeepVerbs(database.statements)
        self._pruner = Pruner(new_id(), f"{by} on {socket.gethostname()} (process {os.getpid()})")
        self._keep = keep
        self._budget = budget
        self._by = by
        self._told = told
        self._rest = rest
        self._until = 0.0
        self.pruned = Pruned()

    def run(self) -> Pruned:
        """Prune to the end, or to the end of the budget.

        Raises:
            Conflict: another one prunes. Nothing is lost by leaving it to that one.
            StoreUnavailable: what is removed by then is removed; run it again.
        """
        self._until = time.monotonic() + self._budget
        with self._database.connect("prune") as conn, self._database.telling():
            conn.prepare_threshold = None  # behind a pooler the next transaction may be on another server connection
            self._take(conn)
            try:
                run(conn, self._note("store.prune", {"keep_seconds": self._keep}))
                self._days(conn)
                self._rows(conn)
                self._payloads(conn)
                self._steps(conn)
                self._keys(conn)
                self._days(conn, again=True)
                run(conn, self._note("store.prune.end", vars(self.pruned)))
            finally:
                with contextlib.suppress(Exception):  # the lease ends by itself in a moment
                    run(conn, self._verbs.give_back(self._pruner))
        return self.pruned

    def _note(self, action: str, detail: dict[str, Any]) -> Program[None]:
        return audit.record(self._database.statements, actor=self._by, action=action, detail=detail)

    def _take(self, conn: Any) -> None:
        """Whoever renews the lease is alive; whoever was killed does not, and is waited for."""
        seen, until = None, time.monotonic() + LEASE + 2
        while not self._piece(conn, _nothing()):
            held = run(conn, self._verbs.holder())
            renewed = held is not None and seen is not None and held[2] != seen
            if held is not None and (renewed or time.monotonic() > until):
                raise Conflict(f"{held[0]} prunes already, since {held[1]:%H:%M:%S %Z}; one at a time. Nothing was changed here")
            seen = held[2] if held is not None else None
            self._rest(LOOK_AGAIN)

    def _piece(self, conn: Any, program: Program[T]) -> T | None:
        """A small commit under the lease. None: somebody else has it."""
        try:
            with conn.transaction():
                return run(conn, program) if run(conn, self._verbs.lease(self._pruner)) else None
        except Exception as error:
            if is_locked(error):
                return None
            raise
        finally:
            program.close()

    def _next(self, conn: Any, make: Callable[[], Program[T]]) -> T:
        began = time.monotonic()
        found = self._piece(conn, make())
        if found is None:
            raise Conflict("another one has begun to prune after this one stood still; what was removed is removed")
        self._told(self.pruned)
        self._rest(min(LONGEST_REST, time.monotonic() - began))
        return found

    def _over(self) -> bool:
        self.pruned.more = self.pruned.more or time.monotonic() > self._until
        return self.pruned.more

    def _days(self, conn: Any, *, again: bool = False) -> None:
        """Drop whole days. Those in use are tried again at the end, for the rest of the time but at most for ten seconds."""
        last = min(self._until, time.monotonic() + 10.0)
        while True:
            self.pruned.in_use = []
            for table, day in run(conn, self._verbs.old_days(seconds=self._keep)):
                gone = run(conn, self._verbs.drop_day(self._pruner, table, day))
                if gone is None:
                    raise Conflict("another one has begun to prune after this one stood still; what was removed is removed")
                (self.pruned.days if gone else self.pruned.in_use).append(day)
                self._told(self.pruned)
            if not again or not self.pruned.in_use or time.monotonic() > last:
                return
            self._rest(LOOK_AGAIN)

    def _rows(self, conn: Any) -> None:
        while not self._over():
            finished, attempts = self._next(conn, lambda: self._verbs.delete_old(seconds=self._keep))
            self.pruned.finished += finished
            self.pruned.attempts += attempts
            if PIECE not in (finished, attempts):
                return

    def _keys(self, conn: Any) -> None:
        """Windows that are over, and suppressed enqueues that are listed no more."""
        while not self._over():
            windows = self._next(conn, self._verbs.expire_keys)
            hits = self._next(conn, lambda: self._verbs.fold_hits(seconds=self._keep))
            self.pruned.windows += windows
            self.pruned.hits += hits
            if windows < PIECE and hits < PIECE_OF_HITS:
                return

    def _payloads(self, conn: Any) -> None:
        after = UUID(int=0)
        while not self._over():
            make = partial(self._verbs.delete_payloads, after=after, seconds=self._keep)
            looked, deleted, last = self._next(conn, make)
            self.pruned.payloads += deleted
            if not looked or last is None:
                return
            after = last

    def _steps(self, conn: Any) -> None:
        after = (UUID(int=0), "")
        while not self._over():
            make = partial(self._verbs.delete_steps, after=after, seconds=self._keep)
            looked, deleted, last = self._next(conn, make)
            self.pruned.steps += deleted
            if not looked or last is None:
                return
            after = last


def _nothing() -> Program[bool]:
    return True
    yield  # a program without a statement

"""Workers: their rows, leases, and the rescue of what the dead ones leave."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from jobwell.core.errors import NotFound
from jobwell.store.statements import Program, Statements

WORKER_COLUMNS = (
    "id", "name", "host", "pid", "version", "state", "queues", "slots", "busy", "started_at", "silent", "up", "tasks", "wakeups",
    "skew", "lag", "pools", "held",
)  # fmt: skip
RUNNING_COLUMNS = ("id", "task", "queue", "tenant", "priority", "attempt", "started_at", "seconds")
MOST_RUNNING = 1000


class WorkerVerbs:
    """Programs about workers; they run on connections of either colour."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    def register(
        self, worker: UUID, *, lease: float, pid: int, host: str, name: str, version: str, slots: int, queues: Sequence[str]
    ) -> Program[tuple[datetime, datetime]]:
        """A fresh worker with a lease. Returns the database's time, and its host's (the same, but in tests that travel)."""
        rows = yield self._statements(
            "workers.register", id=worker, lease=lease, pid=pid, host=host, name=name, version=version, slots=slots,
            queues=list(queues),
        )  # fmt: skip
        return rows[0][0], rows[0][1]

    def renew(
        self, worker: UUID, *, lease: float, busy: int, wakeups: str = "poll", skew: float | None = None, lag: float | None = None
    ) -> Program[tuple[datetime, datetime] | None]:
        """Renew the lease. Returns the database's time, and its host's; None: this worker was declared dead, and must stop.

        Args:
            worker: whose.
            lease: seconds from now.
            busy: how many jobs it runs.
            wakeups: 'notify' when it was proved that they arrive, else 'poll'.
            skew: seconds by which its host's clock is ahead of the database's, as far as it knows.
            lag: seconds for which its event loop did not answer, at the worst since the last renewal.
        """
        rows = yield self._statements("workers.renew", id=worker, lease=lease, busy=busy, wakeups=wakeups, skew=skew, lag=lag)
        return (rows[0][0], rows[0][1]) if rows else None

    def listens(self) -> Program[set[str]]:
        """The channels to which this connection is subscribed."""
        rows = yield self._statements("workers.listens")
        return {row[0] for row in rows}

    def echo(self, worker: UUID, text: str) -> Program[None]:
        """Send a notification to this worker alone."""
        yield self._statements("workers.echo", channel=self._statements.channel_of(worker), text=text)

    def renew_for(self, worker: UUID, *, lease: float) -> Program[None]:
        """Renew the lease of a worker that lives and cannot do it itself; it keeps the time of its own last beat."""
        yield self._statements("workers.renew_for", id=worker, lease=lease)

    def keeps_children(self, worker: UUID, *, children: int) -> Program[None]:
        """It can run suspects alone."""
        yield self._statements("workers.keeps_children", id=worker, children=children)

    def pools(self, worker: UUID, *, pools: str | None, slots: int, held: str) -> Program[None]:
        """Its slots, by pool as JSON where it has pools, and why it holds heavy tasks back, if it does."""
        yield self._statements("workers.pools", id=worker, pools=pools, slots=slots, held=held)

    def suspect(self, worker: UUID, *, how: str, bound: int) -> Program[int]:
        """Its process died: what it ran itself is suspect, and runs alone from now on. Returns how many there are."""
        rows = yield self._statements("workers.suspect", worker=worker, how=how, bound=bound)
        return int(rows[0][0])

    def say_idle(self, worker: UUID, *, idle: bool) -> Program[None]:
        """Whether an enqueue should wake this worker."""
        yield self._statements("workers.idle", id=worker, idle=idle)

    def drain(self, worker: UUID) -> Program[None]:
        """It claims no more and ends soon."""
        yield self._statements("workers.drain", id=worker)

    def leave(self, worker: UUID) -> Program[None]:
        """It has handed everything back."""
        yield self._statements("workers.leave", id=worker)

    def expire(self, worker: UUID) -> Program[None]:
        """Its process was seen to die."""
        yield self._statements("workers.expire", id=worker)

    def bury(self, by: UUID | None = None) -> Program[list[UUID]]:
        """Declare dead whose lease has ended; done by a worker only while its own renewal is young."""
        rows = yield self._statements("workers.bury", worker=by)
        return [row[0] for row in rows]

    def rescue(self, *, limit: int, bound: int) -> Program[int]:
        """Take back up to `limit` jobs of workers that are dead or gone. Returns how many."""
        rows = yield self._statements("workers.rescue", limit=limit, bound=bound)
        return int(rows[0][0])

    def forget(self, *, seconds: float) -> Program[None]:
        """Delete the rows of workers that died so long ago."""
        yield self._statements("workers.forget", seconds=seconds)

    def all(self, *, limit: int = 200) -> Program[list[dict[str, Any]]]:
        """Workers as rows for people."""
        rows = yield self._statements("workers.list", limit=limit)
        return [dict(zip(WORKER_COLUMNS, row, strict=True)) for row in rows]

    def one(self, typed: str) -> Program[dict[str, Any]]:
        """A worker and what it runs, by its id, the beginning of it, or its name.

        Raises:
            NotFound: there is none, or there are several.
        """
        rows = yield self._statements("workers.find", typed=typed, beginning=typed.replace("-", "").lower())
        if not rows:
            raise NotFound(f"there is no worker {typed!r}; `jobwell workers list` shows them")
        if len(rows) > 1:
            raise NotFound(f"several workers are called {typed!r}; give more of the id")
        found = dict(zip(WORKER_COLUMNS, rows[0], strict=True))
        runs = yield self._statements("workers.runs", worker=found["id"], limit=MOST_RUNNING)
        return {**found, "runs": [dict(zip(RUNNING_COLUMNS, row, strict=True)) for row in runs]}

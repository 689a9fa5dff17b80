"""Jobs made by hand, and hands that claim them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection, Connection

from jobwell.core.ids import gate_of, new_id
from jobwell.core.job import NewJob
from jobwell.core.outcome import Cancelled, Failed, Failure, Released, Retrying, Snoozed, Succeeded
from jobwell.core.states import Reason
from jobwell.store.jobs import Batch, Claimed, ClaimRequest, JobVerbs, insert
from jobwell.store.statements import Statements, run

TASK = "note"
GATE = gate_of(TASK)
FAILURE = Failure("ValueError", "it did not work", "Traceback …", "tasks.py:note", "unknown")
FAILED = Failed(Reason.EXHAUSTED, FAILURE)
RETRYING = Retrying(60.0, FAILURE, "a note")
SNOOZED = Snoozed(60.0, "not yet")
RELEASED = Released("shutdown")
DONE = Succeeded()


def new(count: int = 1, **columns: Any) -> list[NewJob]:
    """Jobs as `task.job(…)` makes them, with chosen columns."""
    usual: dict[str, Any] = {
        "task": TASK, "queue": "default", "rank": 100, "gate": GATE, "tenant": "", "lock_key": "", "args": "{}", "size": 2,
        "delay": 0.0, "run_at": None, "deadline": 3600.0,
    }  # fmt: skip
    return [NewJob(id=new_id(), **(usual | columns)) for _ in range(count)]


@dataclass
class Store:
    """The store's tables as a test sees them.

    Attributes:
        conn: a plain connection that sees what is committed.
    """

    conn: "Connection[Any]"
    statements: Statements

    def put(self, jobs: Sequence[NewJob], meta: str | None = None) -> list[UUID]:
        """Store jobs by the path of `enqueue`; gives their ids."""
        run(self.conn, insert(self.statements, jobs, meta))
        return [job.id for job in jobs]

    def put_new(self, count: int = 1, **columns: Any) -> list[UUID]:
        """Make and store jobs."""
        return self.put(new(count, **columns))

    def ask(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Rows."""
        return self.conn.execute(query, parameters).fetchall()

    def one(self, query: str, *parameters: Any) -> Any:
        """The only row, or its only value."""
        (row,) = self.ask(query, *parameters)
        return row[0] if len(row) == 1 else row

    def count(self, table: str = "jobs", where: str = "true") -> int:
        """How many rows there are."""
        return int(self.one(f"select count(*) from {table} where {where}"))

    def states(self) -> dict[str, int]:
        """How many live jobs there are in each state."""
        return dict(self.ask("select state, count(*) from jobs group by state"))

    def snapshot(self) -> list[tuple[Any, ...]]:
        """Everything that a verb might change."""
        return [
            self.ask(f"select to_jsonb(t) from {table} t order by to_jsonb(t)::text")  # type: ignore[misc]
            for table in ("jobs", "finished", "quarantine", "attempts", "payloads", "workers")
        ]


@dataclass
class Hand:
    """A worker as the store sees it: an id, a connection, and the claim ids it has used."""

    conn: "AsyncConnection[Any]"
    verbs: JobVerbs
    worker: UUID = field(default_factory=new_id)
    claim_id: UUID = field(default_factory=new_id)

    def ask(
        self, want: int = 10, *, queues: Sequence[str] = ("default",), gates: Sequence[int] = (GATE,), **ask: Any
    ) -> ClaimRequest:
        """What a claim with a fresh claim id asks for."""
        self.claim_id = new_id()
        return ClaimRequest(self.worker, self.claim_id, list(queues), list(gates), want, **ask)

    async def claim(self, want: int = 10, **ask: Any) -> Batch:
        """One claim with a fresh claim id."""
        return await self.verbs.claim(self.conn, self.ask(want, **ask))

    async def claim_one(self, **ask: Any) -> Claimed:
        """A claim that must find exactly one job."""
        (row,) = await self.claim(1, **ask)
        return row

    async def end(self, end: Any, *pairs: tuple[UUID, UUID]) -> set[UUID]:
        """Bring jobs to the same end by the verb that it belongs to. Gives what was lost."""
        if isinstance(end, Succeeded):
            return await self.verbs.finish(
                self.conn, [job for job, _ in pairs], [claim for _, claim in pairs], [end] * len(pairs)
            )
        if isinstance(end, Failed):
            return await self.verbs.fail(self.conn, [(job, claim, TASK, end) for job, claim in pairs])
        if isinstance(end, Cancelled):
            return await self.verbs.cancelled(self.conn, [(job, claim, end) for job, claim in pairs])
        if isinstance(end, Retrying):
            return await self.verbs.retry(self.conn, [(job, claim, end) for job, claim in pairs])
        return await self.verbs.postpone(self.conn, [(job, claim, end) for job, claim in pairs])


def ids(rows: Sequence[Claimed]) -> list[UUID]:
    """Of claimed rows."""
    return [row.id for row in rows]

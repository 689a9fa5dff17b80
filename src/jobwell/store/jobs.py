"""Jobs: put in, claimed, and brought to the end of an attempt. Verbs, not statuses: each names a transition."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from psycopg import AsyncConnection, AsyncCursor

from jobwell.core.fingerprint import fingerprint
from jobwell.core.job import NewJob
from jobwell.core.marks import Lane, Mark
from jobwell.core.outcome import Cancelled, Crashed, Expiring, Failed, Released, Retrying, Snoozed, Succeeded
from jobwell.core.ranks import rank_of
from jobwell.core.task import TaskSpec
from jobwell.store import follow, results
from jobwell.store.arrays import Uuids
from jobwell.store.statements import Program, Query, Statements

INLINE = 2048  # larger arguments stand apart, so that a claim does not move them
CLAIM_BYTES = 8 * 1024 * 1024
FIRST_GATE = -(2**63)


class Claimed(NamedTuple):
    """A job as the claim hands it out. `args` is None where the arguments stand apart."""

    id: UUID
    task: str
    queue: str
    tenant: str
    gate: int
    rank: int
    attempt: int
    failures: int
    postponements: int
    bytes: int
    remaining: float | None
    args: str | None
    meta: str | None
    ready_us: int
    lanes: int
    reads: int


class Batch(list[Claimed]):
    """What one claim gave.

    Attributes:
        claim_id: that all of its rows carry.
        end: where the walk ended, as a row without a job: with limits the lanes are in no order in which rows could tell it.
        again: seconds after which it is worth while to ask again: a rate lets the next one in then. None: nothing says so.
    """

    claim_id: UUID
    end: Claimed | None = None
    again: float | None = None


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What one claim asks for.

    Attributes:
        claim_id: made before, never used twice.
        gates: open ones; jobs behind any other gate are not touched.
        from_rank: 0, or the rank at which a claim for the lower ranks begins.
        after_gate, after_tenant: the lane behind which to begin.
        lanes: the only lanes to look at, each with its mark; None: look for lanes.
        lag: microseconds; no mark counts beyond the time so long ago.
    """

    worker: UUID
    claim_id: UUID
    queues: Sequence[str]
    gates: Sequence[int]
    want: int
    from_rank: int = 0
    after_gate: int = FIRST_GATE
    after_tenant: str = ""
    lanes: Sequence[tuple[Lane, Mark]] | None = None
    lag: int = 0


def insert(statements: Statements, jobs: Sequence[NewJob], meta: str | None) -> Program[None]:
    """Put jobs in, in the order given, and wake a waiting worker."""
    if len(jobs) == 1 and jobs[0].size <= INLINE and not jobs[0].after:
        yield Query(statements["jobs.insert_one"], _one(jobs[0], meta))
        return
    followers = [job for job in jobs if job.after]
    if followers:
        rest = [job for job in jobs if not job.after]
        yield from follow.check(statements, followers, but=rest)
        if rest:
            yield from insert(statements, rest, meta)
        yield from follow.insert(statements, followers, columns_of(followers), meta)
        return
    yield statements("jobs.insert_many", **columns_of(jobs), meta=meta)


def columns_of(jobs: Sequence[NewJob]) -> dict[str, Any]:
    """What each job has, as arrays: no parameter per row."""
    return {
        "id": [job.id for job in jobs], "queue": [job.queue for job in jobs], "task": [job.task for job in jobs],
        "rank": [job.rank for job in jobs], "gate": [job.gate for job in jobs], "tenant": [job.tenant for job in jobs],
        "lock_key": [job.lock_key for job in jobs], "bytes": [job.size for job in jobs], "args": [job.args for job in jobs],
        "run_at": [job.run_at for job in jobs], "delay": [job.delay for job in jobs], "deadline": [job.deadline for job in jobs],
        "inline": INLINE,
    }  # fmt: skip


def _one(job: NewJob, meta: str | None) -> dict[str, Any]:
    return {
        "id": job.id, "queue": job.queue, "task": job.task, "rank": job.rank, "gate": job.gate, "tenant": job.tenant,
        "lock_key": job.lock_key, "bytes": job.size, "args": job.args, "meta": meta, "run_at": job.run_at, "delay": job.delay,
        "deadline": job.deadline,
    }  # fmt: skip


def _fingerprint(task: str, end: Failed) -> str:
    what = end.failure
    return fingerprint(task, reason=end.reason, code=end.code, error_type=what.error_type, place=what.place, message=what.message)


def _lanes(request: ClaimRequest) -> str | None:
    if request.lanes is None:
        return None
    names = ("queue", "rank", "gate", "tenant", "since", "id", "lag")
    return orjson.dumps([dict(zip(names, (*lane, *mark, request.lag), strict=True)) for lane, mark in request.lanes]).decode()


class JobVerbs:
    """The verbs of a worker, on a connection that the caller holds."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    async def claim(self, conn: "AsyncConnection[Any]", request: ClaimRequest) -> Batch:
        """Take up to `want` ready jobs. The claim id is on every row that was taken, also when the answer is lost."""
        cursor = await self._cursor(conn).execute(
            self._statements["jobs.claim"],
            {
                "worker": request.worker, "claim": request.claim_id, "queues": request.queues, "gates": request.gates,
                "want": request.want, "from_rank": request.from_rank, "after_gate": request.after_gate,
                "after_tenant": request.after_tenant, "bytes": CLAIM_BYTES, "lanes": _lanes(request),
            },
        )  # fmt: skip
        batch = Batch(map(Claimed._make, await cursor.fetchall()))
        batch.claim_id = request.claim_id
        if batch and batch[-1].id is None:
            last = batch.pop()
            batch.end = last if last.lanes else None
            batch.again = last.remaining if last.remaining is not None and isfinite(last.remaining) else None
        return batch

    async def payloads(self, conn: "AsyncConnection[Any]", ids: Sequence[UUID]) -> dict[UUID, str]:
        """Arguments that stand apart."""
        cursor = await self._cursor(conn).execute(self._statements["jobs.payloads"], {"ids": ids})
        return dict(await cursor.fetchall())

    async def gates(self, conn: "AsyncConnection[Any]", queues: Sequence[str]) -> dict[int, str]:
        """The gates that have ready jobs, with the name of one task behind each."""
        cursor = await conn.execute(self._statements["jobs.gates"], {"queues": queues})
        return dict(await cursor.fetchall())

    async def adopt(self, conn: "AsyncConnection[Any]", gate: int, spec: TaskSpec) -> None:
        """Say what is behind a gate that nobody has told of: a known task, as it is known here."""
        await conn.execute(self._statements["limits.adopt"], {"gate": gate, "task": spec.name, "resources": list(spec.resources)})

    async def finish(
        self, conn: "AsyncConnection[Any]", ids: Sequence[UUID], claims: Sequence[UUID], ends: Sequence[Succeeded]
    ) -> set[UUID]:
        """Succeeded. Returns the ids that were no longer the caller's."""
        return await self._lost(
            conn, "jobs.finish",
            {
                "ids": Uuids(ids), "claims": Uuids(claims), "results": [end.result for end in ends],
                "notes": [end.note for end in ends],
            },
        )  # fmt: skip

    async def finish_expiring(
        self, conn: "AsyncConnection[Any]", ids: Sequence[UUID], claims: Sequence[UUID], ends: Sequence[Expiring]
    ) -> set[UUID]:
        """As `finish`, with results that are kept for a time of their own."""
        return await results.finish_expiring(conn, self._statements, ids, claims, ends)

    async def fail(self, conn: "AsyncConnection[Any]", ends: Iterable[tuple[UUID, UUID, str, Failed]]) -> set[UUID]:
        """Over, to the quarantine: (id, claim id, task, end). Returns the ids that were no longer the caller's."""
        given = [
            {
                "id": str(job), "claim_id": str(claim), "reason": end.reason, "code": end.code, "counts": end.counts,
                "kind": end.failure.kind, "error_type": end.failure.error_type, "message": end.failure.message,
                "traceback": end.failure.traceback or None, "origin": end.failure.origin,
                "fingerprint": _fingerprint(task, end),
            }
            for job, claim, task, end in ends
        ]  # fmt: skip
        return await self._settle(conn, "jobs.fail", given)

    async def retry(self, conn: "AsyncConnection[Any]", ends: Iterable[tuple[UUID, UUID, Retrying]]) -> set[UUID]:
        """Another attempt after a delay. Returns the ids that were no longer the caller's."""
        given = [
            {
                "id": str(job), "claim_id": str(claim), "delay": end.delay, "kind": end.failure.kind,
                "error_type": end.failure.error_type, "message": end.failure.message,
                "traceback": end.failure.traceback or None, "origin": end.failure.origin, "note": end.note, "queue": end.queue,
                "rank": None if end.priority is None else rank_of(end.priority),
            }
            for job, claim, end in ends
        ]  # fmt: skip
        return await self._settle(conn, "jobs.retry", given)

    async def postpone(self, conn: "AsyncConnection[Any]", ends: Iterable[tuple[UUID, UUID, Snoozed | Released]]) -> set[UUID]:
        """Back to the queue, uncounted. Returns the ids that were no longer the caller's."""
        given = [
            {
                "id": str(job), "claim_id": str(claim), "delay": end.delay,
                "outcome": "snoozed" if isinstance(end, Snoozed) else "released",
                "message": end.message if isinstance(end, Snoozed) else end.cause,
            }
            for job, claim, end in ends
        ]  # fmt: skip
        return await self._settle(conn, "jobs.postpone", given)

    async def unstarted(self, conn: "AsyncConnection[Any]", ends: Iterable[tuple[UUID, UUID, Released]]) -> set[UUID]:
        """As `postpone`, of jobs whose code was not begun: rates give back what was charged for them."""
        given = [
            {"id": str(job), "claim_id": str(claim), "delay": end.delay, "outcome": "released", "message": end.cause}
            for job, claim, end in ends
        ]
        return await self._settle(conn, "jobs.unstarted", given)

    async def cancelled(self, conn: "AsyncConnection[Any]", ends: Iterable[tuple[UUID, UUID, Cancelled]]) -> set[UUID]:
        """Stopped as it was asked. Returns the ids that were no longer the caller's."""
        given = [
            {
                "id": str(job), "claim_id": str(claim), "kind": end.failure and end.failure.kind,
                "error_type": end.failure and end.failure.error_type, "message": end.failure and end.failure.message,
                "traceback": (end.failure and end.failure.traceback) or None, "origin": end.failure and end.failure.origin,
            }
            for job, claim, end in ends
        ]  # fmt: skip
        return await self._settle(conn, "jobs.cancelled", given)

    async def crash(self, conn: "AsyncConnection[Any]", ends: Sequence[tuple[UUID, UUID, Crashed]], *, bound: int) -> set[UUID]:
        """Its child died; after `bound` times, to the quarantine. Returns the ids that were no longer the caller's."""
        return await self._lost(
            conn, "jobs.crash",
            {
                "ids": [job for job, _, _ in ends], "claims": [claim for _, claim, _ in ends],
                "hows": [end.how for _, _, end in ends], "bound": bound,
            },
        )  # fmt: skip

    async def held_by(self, conn: "AsyncConnection[Any]", worker: UUID) -> list[tuple[UUID, UUID]]:
        """What the store says this worker runs: (id, claim id)."""
        cursor = await conn.execute(self._statements["jobs.held_by"], {"worker": worker})
        return [(row[0], row[1]) for row in await cursor.fetchall()]

    async def flip_due(self, conn: "AsyncConnection[Any]", limit: int) -> tuple[int, float | None]:
        """Flip due jobs to ready. Returns how many, and the seconds until the next is due (None: none waits)."""
        row = await (await conn.execute(self._statements["jobs.flip_due"], {"limit": limit})).fetchone()
        return (row[0], row[1]) if row else (0, None)

    async def _settle(self, conn: "AsyncConnection[Any]", name: str, given: list[dict[str, Any]]) -> set[UUID]:
        return await self._lost(conn, name, {"given": orjson.dumps(given).decode()})

    async def _lost(self, conn: "AsyncConnection[Any]", name: str, parameters: dict[str, Any]) -> set[UUID]:
        cursor = await self._cursor(conn).execute(self._statements[name], parameters)
        return {row[0] for row in await cursor.fetchall()}

    @staticmethod
    def _cursor(conn: "AsyncConnection[Any]") -> "AsyncCursor[Any]":
        return conn.cursor(binary=True)

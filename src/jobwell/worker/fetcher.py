"""Claims jobs: only as many as there are free slots, so that no ready job waits behind a busy one.

Polling is the truth; a wake-up only ends a pause early. The order that closes the race with an enqueue: say that this
worker is idle, look once more, and only then rest, a little longer each time.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from jobwell.core.catalog import Catalog
from jobwell.core.ids import alone, new_id
from jobwell.core.outcome import Released
from jobwell.core.shares import Line, Queue
from jobwell.store.jobs import Batch, Claimed, ClaimRequest, JobVerbs
from jobwell.store.link import Link
from jobwell.store.statements import arun
from jobwell.store.workers import WorkerVerbs
from jobwell.worker.pools import Pools
from jobwell.worker.streams import AGAIN, Rotation, Stream

log = logging.getLogger("jobwell.worker")

APART_EVERY = 1.0  # seconds between two looks for suspects; for declared process tasks it looks at each round
RESTS = (0.002, 0.01, 0.05)  # then the longest, from the settings
CLAIMS_PER_ROUND = 8
FLOOD = 0.05  # seconds since a claim got all that it wanted
DISCOVER_EVERY = 4.0  # seconds between two looks for gates that other releases have declared


@dataclass(frozen=True)
class Apart:
    """Jobs that run in children: claimed by themselves, no more than there are free children.

    Attributes:
        gates: of tasks declared so.
        suspects: gates of jobs whose process has died.
        free: tells the free children.
        heavy: of these gates, those of heavy tasks.
        held: tells whether heavy tasks wait for memory.
    """

    gates: Sequence[int]
    suspects: Sequence[int]
    free: Callable[[], int]
    heavy: frozenset[int]
    held: Callable[[], bool]


class Fetcher:
    """The claiming service of a worker.

    Args:
        free: tells the free slots, where there are no pools, but for so many that are to begin at once.
        begin: starts the attempts of what was claimed.
        held: what the worker's memory holds, for reconciliation: (id, claim id).
        batch: jobs in one claim at the most.
        reconcile_every: seconds between two comparisons of that with the store.
        apart: what runs in children; None where there are none.
        strict: no claim goes to lower ranks while a higher one has jobs.
        pools: share the slots; None: there is nothing to share.
    """

    def __init__(
        self,
        *,
        worker: UUID,
        queues: Sequence[str],
        catalog: Catalog,
        jobs: JobVerbs,
        workers: WorkerVerbs,
        link: Link,
        longest_rest: float,
        free: Callable[[int], int],
        begin: Callable[[Sequence[Claimed], UUID], None],
        held: Callable[[], set[tuple[UUID, UUID]]],
        clock: Callable[[], float],
        reconcile_every: float,
        batch: int,
        apart: Apart | None = None,
        strict: bool = False,
        pools: Pools | None = None,
    ) -> None:
        self._worker = worker
        self._queues = list(queues)
        self._catalog = catalog
        self._jobs = jobs
        self._workers = workers
        self._link = link
        self._rests = (*RESTS, longest_rest)
        self._free = free if pools is None else lambda _: pools.free()
        self._begin = begin
        self._held = held
        self._clock = clock
        self._apart = apart
        self._apart_at = 0.0
        self._apart_turns = Rotation([] if apart is None else [*apart.gates, *apart.suspects], strict=strict)
        self._pools = pools
        self._flood_at = -FLOOD
        lines = [Line(Queue(0, tuple(queues)))] if pools is None else pools.lines
        self._costs = [line.cost for line in lines]
        self._streams = [
            Stream(
                worker=worker, queues=line.queue.names, gates=self._gates_of(line.cost), jobs=jobs, begin=begin, clock=clock,
                strict=strict,
            )
            for line in lines
        ]  # fmt: skip
        self._empty = 0
        self._idle = False
        self._again = AGAIN  # seconds until a rate lets the next job in
        self._doubtful = False  # an answer was lost: rows may carry our claim ids without our knowing
        self._discover_at = 0.0
        self._batch = batch
        self._reconcile_every = reconcile_every
        self._reconcile_at = clock() + reconcile_every
        self.paused = False

    def _gates_of(self, cost: int) -> list[int]:
        """Of the tasks that take so many slots. Those that run apart are claimed by themselves."""
        gates = [gate for spec in self._catalog if spec.cost == cost for gate in spec.gates]
        if self._apart is None:
            return gates + [alone(gate) for gate in gates]  # better here than never
        return [gate for gate in gates if gate not in self._apart.gates]

    async def tick(self) -> float:
        """One claim. Returns how long to rest: no longer than until a rate lets the next job in."""
        self._again = AGAIN
        rest = min(await self._round(), self._again)
        return min(rest, *(stream.again() for stream in self._streams))

    async def _round(self) -> float:
        free = self._free(0)
        if self.paused or (free <= 0 and (self._apart is None or self._apart.free() <= 0)):
            return 3600.0  # woken when a slot or a child is free
        async with self._link.use() as conn:
            # Also now and then: a claim that we gave up may be carried out by the server later.
            if self._in_doubt or self._clock() >= self._reconcile_at:
                await self._reconcile(conn)
            began = await self._claim_apart(conn)
            if free <= 0:
                return 0.0 if began else APART_EVERY
            rows, want = await self._claims_while_full(conn, free)
            if want == 0:
                return self._rests[1]
            rows = rows or began
            if len(rows) >= want:
                if self._idle:
                    await self._say(conn, idle=False)
                return 0.0
            if rows:
                self._empty = 0
                return 0.0 if self._idle else self._rests[0]
            self._empty += 1
            if not self._idle:
                await self._say(conn, idle=True)
                return 0.0  # look once more: what was enqueued before we said so woke nobody
            if self._clock() >= self._discover_at:
                await self._discover(conn)
        return self._rests[min(self._empty, len(self._rests)) - 1]

    async def _claims_while_full(self, conn: "AsyncConnection[Any]", free: int) -> tuple[list[Claimed], int]:
        """In a flood the next claim is under way before the jobs of this one begin, so that server and worker work at once."""
        if self._pools is not None:
            return await self._claims_by_turns(conn, self._pools)
        want, stream = min(free, self._batch), self._streams[0]
        rows = await stream.take(conn, want)
        for _ in range(CLAIMS_PER_ROUND):
            free = self._free(len(rows))
            if len(rows) < want or self.paused or free <= 0:
                break
            want = min(free, self._batch)
            ahead = asyncio.ensure_future(stream.take(conn, want))
            try:
                await asyncio.sleep(0)  # it is sent
                stream.begin(rows)
                rows = await ahead
            finally:
                await _ended(ahead)
        stream.begin(rows)
        return rows, want

    async def _claims_by_turns(self, conn: "AsyncConnection[Any]", pools: Pools) -> tuple[list[Claimed], int]:
        """The same for several streams. Returns 0 for what was wanted where nobody could be asked."""
        now = self._clock()
        calm = self._idle and now - self._flood_at > FLOOD  # beside a flood those that have nothing are not asked at each round
        found = await pools.claims(conn, self._streams, everyone=calm, now=now, paused=lambda: self.paused)
        if found.flood:
            self._flood_at = now
        return found.rows, len(found.rows) + found.short if found.asked else 0

    async def _claim_apart(self, conn: "AsyncConnection[Any]") -> list[Claimed]:
        apart = self._apart
        if apart is None or apart.free() <= 0 or not (apart.gates or self._clock() >= self._apart_at):
            return []
        self._apart_at = self._clock() + APART_EVERY
        gates = [*apart.gates, *apart.suspects]
        if apart.held():
            gates = [gate for gate in gates if gate not in apart.heavy]
        rows = Batch()
        for from_rank in self._apart_turns.ranks():
            claim_id = new_id()
            turns = self._apart_turns
            request = ClaimRequest(self._worker, claim_id, self._queues, gates, apart.free(), from_rank, turns.gate, turns.tenant)
            self._doubtful = True
            rows = await self._jobs.claim(conn, request)
            if rows.again is not None:
                self._again = min(self._again, rows.again)
            if rows or rows.end is not None:
                turns.learn(rows, rows.end)
            if rows:
                self._begin(await self._streams[0].with_payloads(conn, rows), claim_id)
            self._doubtful = False
            if rows:
                break
        return rows

    def failed(self, error: BaseException) -> None:
        """A round failed; the answer to a claim may be lost."""
        del error
        self._doubtful = True
        self._idle = False

    async def _say(self, conn: "AsyncConnection[Any]", *, idle: bool) -> None:
        await arun(conn, self._workers.say_idle(self._worker, idle=idle))
        self._idle = idle

    @property
    def _in_doubt(self) -> bool:
        return self._doubtful or any(stream.doubtful for stream in self._streams)

    async def reconcile(self) -> None:
        """The same at the end of the worker, where an answer is in doubt."""
        if self._in_doubt:
            async with self._link.use() as conn:
                await self._reconcile(conn)

    async def _reconcile(self, conn: "AsyncConnection[Any]") -> None:
        """Hand back, uncounted, what carries our claim ids but is not in our memory."""
        held = self._held()  # read first: what ends while the store answers is no stray
        stray = [pair for pair in await self._jobs.held_by(conn, self._worker) if pair not in held]
        if stray:
            log.warning("%d job(s) were claimed but the answer was lost; they go back", len(stray))
            await self._jobs.unstarted(conn, [(job, claim, Released("the answer to the claim was lost")) for job, claim in stray])
        self._doubtful = False
        for stream in self._streams:
            stream.settle()
        self._reconcile_at = self._clock() + self._reconcile_every

    async def _discover(self, conn: "AsyncConnection[Any]") -> None:
        """Learn gates of known tasks that another release declared with other resources."""
        self._discover_at = self._clock() + DISCOVER_EVERY
        for gate, task in (await self._jobs.gates(conn, self._queues)).items():
            spec = self._catalog.get(task)
            if spec is None or spec.executor == "process":
                continue
            if self._apart is not None and gate in (*self._apart.gates, *self._apart.suspects):
                continue
            for cost, stream in zip(self._costs, self._streams, strict=True):
                if cost == spec.cost and not stream.knows(gate):
                    # Limits of the task hold there from the first claim on; its own release may know more.
                    await self._jobs.adopt(conn, gate, spec)
                    stream.open(gate)


async def _ended(claim: "asyncio.Future[Batch]") -> None:
    """A claim under way is not left alone with the connection: it has ended when somebody else may use that."""
    if not claim.done():
        claim.cancel()
        with contextlib.suppress(BaseException):
            await claim

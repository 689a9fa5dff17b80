"""The pools of one worker process: what its jobs take, what each pool may have now, and the claims by turns.

Made only where there is something to share: pools, tasks with a cost, or a limit of memory. Everything else goes without.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import orjson
from psycopg import AsyncConnection

from jobwell.app import App
from jobwell.core.catalog import Catalog
from jobwell.core.errors import SettingsError
from jobwell.core.pools import Pool, peak, queues_of
from jobwell.core.shares import Line, Queue, Room, Round, Share, rooms
from jobwell.core.size import memory_limit
from jobwell.store.jobs import Claimed
from jobwell.store.link import Link
from jobwell.store.statements import arun
from jobwell.store.workers import WorkerVerbs
from jobwell.worker.finisher import LARGEST, Finisher
from jobwell.worker.memory import Memory
from jobwell.worker.record import Attempt

log = logging.getLogger("jobwell.worker")

EVERY = 1.0  # seconds between two looks at the time table and the memory
CLAIMS_PER_ROUND = 32
ALONE = "all"  # the pool of a worker that has none


class Source(Protocol):
    """What claims for a line."""

    async def claim(self, conn: "AsyncConnection[Any]", want: int) -> list[Claimed]:
        """Take up to `want` jobs and begin them."""

    async def waits(self, conn: "AsyncConnection[Any]") -> bool:
        """Whether any job is ready."""


@dataclass(slots=True)
class Claims:
    """What a round of claims brought.

    Attributes:
        rows: of the last claim that found any.
        asked: whether anybody could be asked.
        flood: whether a claim got all that it wanted.
        short: whether a line that has room has fewer jobs than that.
    """

    rows: list[Claimed]
    asked: bool = False
    flood: bool = False
    short: bool = False


class Pools:
    """Shares the slots of a worker.

    Args:
        pools: in use; empty: one of all queues.
        queues: of each pool.
        slots: of the process; None: as many as the pools have together.
        costs: of the tasks that it can run.
        now: the database's time.
        memory: what holds heavy tasks back; None: nothing.
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        queues: Sequence[Sequence[str]],
        *,
        slots: int | None,
        costs: Iterable[int],
        now: Callable[[], datetime],
        memory: Memory | None,
    ) -> None:
        self._pools = pools
        self._queues = queues
        self._slots = slots
        self._now = now
        self.memory = memory
        self._used = [0] * len(pools)
        self.peak = slots or peak(pools)  # the most slots that there are at any time of the day
        self._over = [0] * len(pools)  # slots used beyond what a time table gives now
        self._place = {queue: at for at, names in enumerate(queues) for queue in names}
        self.lines = [
            Line(queue, cost)
            for at, pool in enumerate(pools)
            for queue in _groups(at, pool, queues[at])
            for cost in sorted({1, *costs})
            if cost == 1 or cost <= pool.highest
        ]
        self.named = any(pool.name != ALONE for pool in pools)
        self._told: dict[str, Any] = {}
        self._shares: list[Share] = []
        self.finisher: Finisher | None = None

    # --- what jobs take --------------------------------------------------------------------------------------------------

    def began(self, attempts: Iterable[Attempt]) -> None:
        """Their slots are taken."""
        for attempt in attempts:
            self._used[self._pool_of(attempt)] += cost_of(attempt)

    def ended(self, attempt: Attempt) -> None:
        """Its slots are free."""
        self._used[self._pool_of(attempt)] -= cost_of(attempt)

    @property
    def queues(self) -> tuple[str, ...]:
        """Of all pools."""
        return tuple(queue for names in self._queues for queue in names)

    @property
    def busy(self) -> int:
        """Slots taken, in all."""
        return sum(self._used)

    def _pool_of(self, attempt: Attempt) -> int:
        return self._place.get(attempt.job.queue, 0)

    # --- what they may take ----------------------------------------------------------------------------------------------

    def shares(self) -> list[Share]:
        """Of each pool, now."""
        if not self._shares:
            self.refresh()
        return self._shares

    @property
    def total(self) -> int:
        """Slots of the process, now. What a pool has lost to its time table and still uses takes nothing from the others."""
        if self._slots:
            return self._slots
        shares = self.shares()
        self._over = [min(over, _above(share, used)) for over, share, used in zip(self._over, shares, self._used, strict=True)]
        return min(self.peak, sum(share.own for share in shares) + sum(self._over))

    @property
    def heavy(self) -> bool:
        """Whether heavy tasks may begin."""
        return self.memory is None or not self.memory.high

    def refresh(self) -> bool:
        """Read the time tables. Returns whether a pool has other slots than before."""
        now = self._now()
        shares = [pool.share(now) for pool in self._pools]
        if shares == self._shares:
            return False
        for pool, share, before in zip(self._pools, shares, self._shares, strict=False):
            if share != before:
                log.info("pool %s has %d slot(s) now, with borrowed ones %d", pool.name, share.own, share.most)
        self._shares = shares
        self._over = [_above(share, used) for share, used in zip(shares, self._used, strict=True)]
        return True

    def used(self) -> list[int]:
        """Slots whose code is not over, pool by pool: what waits for nothing but its outcome's commit is free in a moment."""
        used = [*self._used]
        for attempt in self.finisher.leaving if self.finisher is not None else ():
            used[self._pool_of(attempt)] -= cost_of(attempt)
        return used

    def rooms(self) -> list[Room]:
        """What each pool may take now. In a flood whole batches, as without pools."""
        shares, waiting = self.shares(), self._waiting()
        found = rooms(shares, self.used(), self.total)
        return [
            Room(0, 0) if at in waiting and room.most < batch_of(max(share.own, share.most)) else room
            for at, (room, share) in enumerate(zip(found, shares, strict=True))
        ]

    def free(self) -> int:
        """The most slots that any pool may take now."""
        return max(room.most for room in self.rooms())

    def _waiting(self) -> set[int]:
        """Pools that have outcomes of brief jobs to be stored."""
        if self.finisher is None:
            return set()
        return {self._pool_of(attempt) for attempt, _ in self.finisher.gathered() if not attempt.slow}

    # --- claims by turns -------------------------------------------------------------------------------------------------

    async def claims(
        self, conn: "AsyncConnection[Any]", sources: Sequence[Source], *, everyone: bool, now: float, paused: Callable[[], bool]
    ) -> Claims:
        """A round of claims.

        Args:
            conn: to claim on.
            sources: of each line.
            everyone: ask also those that had nothing a moment ago.
            now: monotonic seconds.
            paused: tells whether to stop.
        """
        turns = Round(self.lines, everyone, self.heavy, now)
        found = Claims([])
        for _ in range(CLAIMS_PER_ROUND):
            turn = None if paused() else turns.next(self.shares(), self.rooms(), self._used)
            if turn is None:
                break
            found.asked = True
            line, source = turn.line, sources[self.lines.index(turn.line)]
            if not turn.slots:
                turns.saw(line, ready=await source.waits(conn))
                continue
            share = self.shares()[line.pool]
            want = max(1, min(turn.slots, batch_of(max(share.own, share.most))) // line.cost)
            rows = await source.claim(conn, want)
            turns.claimed(line, want, len(rows))
            found.rows = rows or found.rows
            found.flood = found.flood or len(rows) >= want
            found.short = found.short or len(rows) < want
        rooms = self.rooms()
        found.short = found.short or any(line.empty for line in self.lines if rooms[line.pool].most > 0)
        return found

    # --- what people see -------------------------------------------------------------------------------------------------

    def told(self) -> dict[str, Any]:
        """The pools as `jobwell workers show` has them: their slots now, and how many jobs may have at this moment."""
        found = rooms(self.shares(), self._used, self.total)
        pools = [
            {
                "name": pool.name, "queues": list(queues), "order": pool.order, "slots": share.own,
                "most": max(share.own, share.most), "least": min(share.least, share.own), "busy": used, "may": used + room.most,
            }
            for pool, queues, share, used, room in zip(self._pools, self._queues, self.shares(), self._used, found, strict=True)
        ]  # fmt: skip
        slots = self._slots or sum(share.own for share in self.shares())
        return {"pools": pools if self.named else None, "slots": slots, "held": "" if self.memory is None else self.memory.said}

    async def publish(self, link: Link, workers: WorkerVerbs, worker: UUID) -> None:
        """Tell the store what has changed."""
        told = self.told()
        if told == self._told:
            return
        pools = None if told["pools"] is None else orjson.dumps(told["pools"]).decode()
        async with link.use() as conn:
            await arun(conn, workers.pools(worker, pools=pools, slots=told["slots"], held=told["held"]))
        self._told = told


class PoolsLoop:
    """The service: time tables, memory, and what people see, once a second.

    Args:
        changed: told when something may begin that could not before.
    """

    def __init__(self, pools: Pools, link: Link, workers: WorkerVerbs, worker: UUID, changed: Callable[[], None]) -> None:
        self._pools = pools
        self._link = link
        self._workers = workers
        self._worker = worker
        self._changed = changed

    async def tick(self) -> float:
        """Look at everything once."""
        pools = self._pools
        opened = pools.memory is not None and await pools.memory.look()
        if pools.refresh() or opened:
            self._changed()
        await pools.publish(self._link, self._workers, self._worker)
        return EVERY


def pools_of(app: App, *, queues: Sequence[str], slots: int | None, now: Callable[[], datetime]) -> Pools | None:
    """The pools of a worker; None where there is nothing to share.

    Args:
        app: with its tasks and settings.
        queues: which the caller wants served.
        slots: as the caller says; None: the settings', and those of the pools where the settings say none.
        now: the database's time.

    Raises:
        SettingsError: pools, queues, tasks and slots do not fit together.
    """
    settings, catalog = app.settings, app.catalog
    costs = {spec.cost for spec in catalog}
    memory = Memory(memory_limit(settings.memory_high, "memory_high")) if settings.memory_high else None
    if not settings.pools:
        total = slots or settings.slots
        names: list[tuple[str, ...]] = [tuple(queues) or settings.queues or app.queues]
        alone = (Pool(ALONE, queues=names[0], slots=total),)
        check_costs(alone, names, catalog)
        return None if costs <= {1} and memory is None else Pools(alone, names, slots=total, costs=costs, now=now, memory=memory)
    pools = settings.pools
    if queues:
        raise SettingsError("queues and pools are both given; the pools name their queues, so leave the others out")
    names = queues_of(pools, app.queues)
    explicit, together = slots or (settings.slots if "slots" in settings.origins else None), peak(pools)
    if explicit is not None and explicit < together:
        raise SettingsError(
            f"the pools have {together} slots of their own, and the process has {explicit}: give it more, or none"
        )
    check_costs(pools, names, catalog)
    return Pools(pools, names, slots=explicit, costs=costs, now=now, memory=memory)


def check_costs(pools: Sequence[Pool], queues: Sequence[Sequence[str]], catalog: Catalog) -> None:
    """Refuse tasks that could never begin.

    Raises:
        SettingsError: a task takes more slots than the pool of its queue ever has.
    """
    for spec in catalog:
        for pool, names in zip(pools, queues, strict=True):
            if spec.queue in names and spec.cost > pool.largest:
                where = (
                    "the worker"
                    if pool.name == ALONE and len(pools) == 1
                    else f"the pool {pool.name!r} of its queue {spec.queue!r}"
                )
                raise SettingsError(
                    f"the task {spec.name} takes {spec.cost} slots (cost={spec.cost}), and {where} has {pool.largest};"
                    " it could never begin"
                )


def cost_of(attempt: Attempt) -> int:
    """Slots that it takes; in a child process none."""
    return 0 if attempt.apart else 1 if attempt.spec is None else attempt.spec.cost


def _above(share: Share, used: int) -> int:
    return max(0, used - max(share.own, share.most))


def batch_of(slots: int) -> int:
    """Jobs in one claim at the most: below it a statement costs more than it carries."""
    return max(1, slots // 4, min(slots // 2, LARGEST))


def _groups(at: int, pool: Pool, queues: Sequence[str]) -> list[Queue]:
    if pool.order == "priority":
        return [Queue(at, tuple(queues))]
    weights = pool.weights or (1,) * len(queues)
    places = range(len(queues)) if pool.order == "strict" else (0,) * len(queues)
    return [Queue(at, (queue,), weight, place) for queue, weight, place in zip(queues, weights, places, strict=True)]

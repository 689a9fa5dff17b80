"""Admits jobs to queues with a limit: by figures that all producers share, and by what this process has added since."""

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from jobwell.client.connections import Connections
from jobwell.core.errors import NotFound, QueueFull, StoreError
from jobwell.core.job import NewJob
from jobwell.core.queues import Pressure, Queue
from jobwell.store.database import Database
from jobwell.store.pressure import Length, lengths
from jobwell.store.statements import arun, run

log = logging.getLogger("jobwell.client")

LEAST, MOST = 0.2, 1.0  # seconds between two looks at the shared figures
WARN_EVERY = 60.0
TOGETHER = 0.05  # seconds: what was added within is kept as one figure
PATIENCE = 2.0  # seconds for a connection beside the caller's transaction, which may hold the last one
SOON = 30.0  # seconds after which figures that could not be had are asked for again


@dataclass(slots=True)
class Figure:
    """What is known of one queue."""

    counted: int = 0
    under_way: int = 0  # not stored yet, or not known to be
    stored: int = 0  # by this process, and not counted in the store yet
    added: deque[tuple[float, float, int]] = field(default_factory=deque)  # the same: from when to when, and how many
    until: float = 0.0  # when to look again
    known: bool = False
    warned: float = float("-inf")

    @property
    def length(self) -> int:
        """Ready jobs, as far as this process can know."""
        return self.counted + self.under_way + self.stored

    def add(self, count: int, now: float) -> None:
        """Stored now."""
        self.stored += count
        since = now
        if self.added and now - self.added[-1][0] < TOGETHER:
            since, _, before = self.added.pop()
            count += before
        self.added.append((since, now, count))

    def learn(self, found: Length, asked_at: float) -> None:
        """Counted in the store. What was stored here since then, or may have been, is counted besides."""
        while self.added and self.added[0][1] < asked_at - found.age:
            self.stored -= self.added.popleft()[2]
        self.counted, self.known = found.jobs, True


class Gauge:
    """The figures of one client, for any thread and loop of the process.

    Args:
        database: the store.
        connections: of the client.
        limits: the queues that have a limit.
    """

    def __init__(self, database: Database, connections: Connections, limits: Mapping[str, Queue]) -> None:
        self.limits = limits
        self.clock: Callable[[], float] = time.monotonic
        self._database = database
        self._connections = connections
        self._caps = {name: queue.cap for name, queue in limits.items()}
        self._figures = {name: Figure() for name in limits}
        self._guard = threading.RLock()  # a signal handler may enqueue in the middle of an enqueue

    def look(self, *, beside: bool) -> None:
        """Have figures that are fresh enough.

        Args:
            beside: a caller's transaction is open, which may hold the last connection there is: one of our own is tried for, not
                waited for.
        """
        if not self._due():
            return
        with self._failing():
            if beside:
                self._ask_beside()
                return
            with self._connections.plain() as own:
                asked_at = self.clock()
                found = run(own, lengths(self._database.statements, self._caps))
            self._learn(found, asked_at)

    async def alook(self, *, beside: bool) -> None:
        """As `look`, for async code."""
        if not self._due():
            return
        with self._failing():
            if beside:
                await asyncio.to_thread(self._ask_beside)
                return
            async with self._connections.of_loop() as own:
                asked_at = self.clock()
                found = await arun(own, lengths(self._database.statements, self._caps))
            self._learn(found, asked_at)

    def _ask_beside(self) -> None:
        with self._database.connect("client", patience=PATIENCE) as own, self._database.telling():
            asked_at = self.clock()
            found = run(own, lengths(self._database.statements, self._caps))
        self._learn(found, asked_at)

    def _due(self) -> bool:
        """Whether this caller is to ask. While it does, the others go by what there is."""
        with self._guard:
            now, figures = self.clock(), self._figures.values()
            due = any(now >= figure.until for figure in figures)
            for figure in figures:
                if due and figure.known:
                    figure.until = now + MOST
            return due

    def _learn(self, found: Mapping[str, Length], asked_at: float) -> None:
        with self._guard:
            for name, length in found.items():
                figure = self._figures[name]
                figure.learn(length, asked_at)
                figure.until = self.clock() + max(LEAST, min(MOST, length.fresh_for))

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """A figure that cannot be had stops nobody: if the store is away, the enqueue itself says so."""
        try:
            yield
        except StoreError as error:
            with self._guard:
                for figure in self._figures.values():
                    figure.known, figure.until = False, self.clock() + SOON
                    figure.stored = 0
                    figure.added.clear()
            log.warning("how long the queues with a limit are cannot be read now, so no limit is held here: %s", error.message)

    def tally(self, *, at_once: bool = True) -> "Tally":
        """For the jobs of one call.

        Args:
            at_once: whether a job is due at once where it says nothing else.
        """
        return Tally(self, at_once=at_once)

    def admit(self, queue: str, *, counts: bool) -> None:
        """Take one job in.

        Args:
            queue: one with a limit.
            counts: whether it is ready at once.

        Raises:
            QueueFull: the queue holds as many as it may.
        """
        limit = self.limits[queue]
        with self._guard:
            figure = self._figures[queue]
            length = figure.length
            full = limit.hard is not None and length >= limit.hard and figure.known
            figure.under_way += counts and not full
            warns = limit.soft is not None and length >= limit.soft and self.clock() >= figure.warned + WARN_EVERY
            if warns:
                figure.warned = self.clock()
        if warns:
            hard = "it has no hard one" if limit.hard is None else f"at {limit.hard:,} it takes no more"
            log.warning(
                "queue %s holds %d ready jobs or more, its soft limit is %d; %s", queue, length, limit.soft, hard,
                extra={"queue": queue},
            )  # fmt: skip
        if full:
            raise QueueFull(
                f"queue {queue!r} is full: {length:,} jobs are ready in it, or about to be, and its hard limit is {limit.hard:,};"
                " nothing was enqueued. Try again when it has drained, enqueue less at a time, or raise the limit"
                f" (queue_lengths={queue}=…)",
                queue=queue, length=length, limit=limit.hard or 0,
            )  # fmt: skip

    def settle(self, taken: Mapping[str, int], *, stored: bool) -> None:
        """What was under way is stored, or it is not."""
        with self._guard:
            for queue, count in taken.items():
                figure = self._figures[queue]
                figure.under_way -= count
                if stored and count:
                    figure.add(count, self.clock())

    def pressure(self, queue: str) -> Pressure:
        """How full a queue is, by the figures at hand.

        Raises:
            NotFound: it has no limit.
        """
        limit = self.limits.get(queue)
        if limit is None:
            have = ", ".join(self.limits) or "none has"
            raise NotFound(
                f"queue {queue!r} has no limit, so nobody counts it; declare App(queues=(Queue({queue!r}, …),)) ({have})"
            )
        return Pressure(queue, self._figures[queue].length, limit.soft, limit.hard)


class Tally:
    """What one call puts into queues with a limit. `with gauge.tally() as tally: …`."""

    def __init__(self, gauge: Gauge, *, at_once: bool) -> None:
        self._gauge = gauge
        self._at_once = at_once
        self._taken: Counter[str] = Counter()
        self._forgiven: Counter[str] = Counter()

    def admit(self, job: NewJob) -> None:
        """One job.

        Raises:
            QueueFull: its queue takes no more.
        """
        if job.queue in self._gauge.limits:
            counts = self._at_once and not job.delay and job.run_at is None and not job.after
            self._gauge.admit(job.queue, counts=counts)
            self._taken[job.queue] += counts

    def forgive(self, queue: str, count: int) -> None:
        """Jobs that were admitted, as ready at once, and for which others stand."""
        if queue in self._gauge.limits and self._at_once:
            self._forgiven[queue] += count

    def each(self, jobs: Iterable[NewJob]) -> Iterator[NewJob]:
        """The jobs, each admitted as it goes by."""
        for job in jobs:
            self.admit(job)
            yield job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._gauge.settle(self._forgiven, stored=False)
        self._gauge.settle(self._taken - self._forgiven, stored=kind is None)

"""What a worker runs now: begun with the claim, forgotten when the outcome is stored. A slot is taken in between."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol
from uuid import UUID

from jobwell.core.ids import alone
from jobwell.core.outcome import Outcome, Released, Succeeded
from jobwell.store.jobs import Claimed
from jobwell.worker import logs
from jobwell.worker.attempt import run
from jobwell.worker.record import Attempt, Stop, Surroundings, begin

log = logging.getLogger("jobwell.worker")

FAULT_DELAY = 30.0  # seconds: what breaks the worker must not do so in a circle


class Taken(Protocol):
    """Keeps account of slots."""

    def began(self, attempts: Iterable[Attempt]) -> None:
        """Their slots are taken."""

    def ended(self, attempt: Attempt) -> None:
        """Its slots are free."""


class Attempts:
    """The attempts of one worker.

    Args:
        around: what they share.
        ended: told of each outcome, to store it.
        free: told when slots are free.
        began: told of attempts that begin; None: nobody wants to know.
        taken: keeps account of slots by pool; None: there are no pools.
    """

    def __init__(
        self,
        around: Surroundings,
        *,
        ended: Callable[[Attempt, Outcome], None],
        free: Callable[[], None],
        began: Callable[[list[Attempt]], None] | None,
        taken: "Taken | None" = None,
    ) -> None:
        self._around = around
        self._ended = ended
        self._free = free
        self._began = began
        self._taken = taken
        self._held: dict[tuple[UUID, UUID], Attempt] = {}
        self._changed = asyncio.Event()
        self.apart = 0  # of these, in children: they take no slot
        self.finished = 0

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self._held.values()))

    def pairs(self) -> set[tuple[UUID, UUID]]:
        """(job id, claim id) of each."""
        return set(self._held)

    def begin(self, rows: Sequence[Claimed], claim_id: UUID) -> None:
        """Start what was claimed."""
        create = asyncio.get_running_loop().create_task
        for row in rows:
            attempt = begin(row, claim_id, self._around.catalog)
            attempt.apart = self._runs_apart(row, attempt)
            self.apart += attempt.apart
            self._held[row.id, claim_id] = attempt
            create(self._run(attempt))  # the loop holds it until its first step, and the attempt from then on
        if self._taken is not None:
            self._taken.began([self._held[row.id, claim_id] for row in rows])
        if self._began is not None:
            self._began([self._held[row.id, claim_id] for row in rows])

    def _runs_apart(self, row: Claimed, attempt: Attempt) -> bool:
        if self._around.children is None or attempt.spec is None:
            return False
        return attempt.spec.executor == "process" or row.gate in map(alone, attempt.spec.gates)

    async def _run(self, attempt: Attempt) -> None:
        outcome: Outcome | None
        attempt.running = asyncio.current_task()  # not before: cancelled unbegun, it would never run, and its slot be lost
        try:
            outcome = await run(attempt, self._around)
        except BaseException as error:  # a fault of ours
            fault = Released(f"a fault of the worker: {type(error).__name__}", FAULT_DELAY)
            outcome = None if attempt.stopped == "lost" else fault
            log.exception("the attempt of job %s broke", attempt.job.id)
        if type(outcome) is not Succeeded and outcome is not None:
            logs.tell(outcome)
        attempt.running = None
        if outcome is None:
            self.stored([attempt])
        else:
            self._ended(attempt, outcome)

    def stored(self, attempts: list[Attempt]) -> None:
        """Their outcomes are stored: their slots are free."""
        for attempt in attempts:
            if self._held.pop((attempt.job.id, attempt.claim_id), None) is not None:
                self.finished += 1
                self.apart -= attempt.apart
                if self._taken is not None:
                    self._taken.ended(attempt)
        self._free()
        self._changed.set()

    @property
    def all_stopped(self) -> bool:
        """Whether each of them was told to stop."""
        return all(attempt.stopped is not None for attempt in self._held.values())

    @property
    def stoppable(self) -> bool:
        """Whether there is one that ends when it is stopped."""
        return any(map(_stops, self._held.values()))

    def cancel(self, job: UUID, claim_id: UUID) -> None:
        """Stop one, as an operator asks."""
        attempt = self._held.get((job, claim_id))
        if attempt is not None:
            if attempt.stopped is None:
                log.info("job %s (%s) is cancelled by an operator", job, attempt.job.task)
            attempt.stop("cancelled")

    def stop(self, why: Stop, *, threads: bool = True) -> None:
        """Stop them all; a lost lease only those whose task does not say that they shall end by themselves.

        Args:
            why: the reason.
            threads: also plain functions, which go on all the same.
        """
        for attempt in self:
            if why == "lost" and attempt.spec is not None and attempt.spec.on_lease_lost == "finish":
                continue
            if threads or _stops(attempt):
                attempt.stop(why)

    def leave(self) -> None:
        """The worker shuts down: loops that can go on elsewhere end at their next item, and leave the grace to the others."""
        if self._around.keeping is not None:
            self._around.keeping.leaving = True
        if self._around.children is not None:
            self._around.children.leave()

    def hurry(self) -> None:
        """Whoever waits for the end looks again."""
        self._changed.set()

    async def until_empty(self, seconds: float, *, unless: Callable[[], bool] = lambda: False) -> None:
        """Wait until none is left, for so long at the most, and not when `unless` says so."""
        until = time.monotonic() + seconds
        while self._held and (rest := until - time.monotonic()) > 0 and not unless():
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), rest)
            except TimeoutError:
                return


def _stops(attempt: Attempt) -> bool:
    """Whether stopping it ends its code too."""
    return attempt.apart or attempt.spec is None or attempt.spec.coroutine

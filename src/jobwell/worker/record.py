"""The record of one attempt, which its steps fill, and what all attempts of a worker share."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from jobwell.client.connections import Connections
from jobwell.core.catalog import Catalog
from jobwell.core.checkpoint import Walk
from jobwell.core.context import Context, SyncContext
from jobwell.core.outcome import Committed, Failed
from jobwell.core.progress import Report
from jobwell.core.task import TaskSpec
from jobwell.store.jobs import Claimed
from jobwell.worker.calls import Calls
from jobwell.worker.executors.children import Children
from jobwell.worker.executors.threads import Plain
from jobwell.worker.middleware import Middleware

if TYPE_CHECKING:
    from jobwell.worker.checkpoints import Keeping

Stop = Literal["timeout", "shutdown", "lost", "cancelled"]


@dataclass(slots=True, eq=False)
class Attempt:
    """The record that the steps fill.

    Attributes:
        job: the claimed row.
        claim_id: the fence of everything that is written about it.
        limit_at: monotonic time at which it is stopped.
        stopped: why it was told to stop, if it was.
        running: the asyncio task it runs in.
        apart: whether it runs in a child process.
        known: what its plain function has returned or raised, as soon as it has.
        kill: ends that child at once; None where there is none.
        walks: loops of `ctx.resume`, by name.
        committed, answer: the job has ended with the task's own transaction, and this is the result that was set there.
        told, told_at: how far it says that it is, and the monotonic time at which that was written last.
        calls, called, failed_in: told of what it does with resources; those it has called; that whose call failed last.
        slow: it took longer than to store its outcome.
        queues: to which a retry may send it.
        around: what it shares with the others.
        ends_as: how it ends, whatever its code makes of it: a step is held.
        in_block: the block of its `ctx.transaction()` is open.
        left_off: a loop has ended before its end, being told to stop: whatever its code makes of that, it has not succeeded.
    """

    job: Claimed
    claim_id: Any
    spec: TaskSpec | None
    began: float
    limit_at: float
    context: Context | SyncContext | None = None
    stopped: Stop | None = None
    running: "asyncio.Task[None] | None" = None
    args: dict[str, Any] = field(default_factory=dict)
    apart: bool = False
    known: tuple[Any, BaseException | None] | None = None
    kill: Callable[[], None] | None = None
    calls: Calls | None = None
    called: set[str] = field(default_factory=set)
    failed_in: str | None = None
    slow: bool = False
    queues: Collection[str] = ()
    around: "Surroundings | None" = None
    ends_as: Failed | None = None
    in_block: bool = False
    left_off: bool = False
    walks: dict[str, Walk] | None = None
    committed: Committed | None = None
    answer: Any = None
    told: Report | None = None
    told_at: float = 0.0

    def stop(self, why: Stop) -> None:
        """Tell it to stop. An async task is cancelled; a plain function is left behind; a child has a moment to clean up.

        Where the job is no longer ours a child has no moment: another worker may run the job by now, so it is killed at once.

        Asked by an operator, a plain function goes on until it sees for itself that it was (or its time limit comes): it
        cannot be stopped, and while it works nobody may call it cancelled.
        """
        self.stopped = self.stopped or why
        if self.context is not None:
            self.context.tell_to_stop()
        if why == "cancelled" and not self.apart and self.spec is not None and not self.spec.coroutine:
            return
        if why == "lost" and self.kill is not None:
            self.kill()
        if self.running is not None:
            self.running.cancel()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all attempts of a worker share.

    Attributes:
        connections: the app's own, for what an attempt stores of itself on the way.
        queues: that the app declares: a retry may go to one of them.
        keeping: checkpoints, progress and transactions.
    """

    catalog: Catalog
    threads: Plain
    middleware: Sequence[Middleware]
    result_limit: int
    now: Callable[[], datetime]
    children: Children | None = None
    calls: Calls | None = None
    connections: Connections | None = None
    queues: Collection[str] = ()
    keeping: "Keeping | None" = None


def begin(job: Claimed, claim_id: Any, catalog: Catalog) -> Attempt:
    """The record of a job just claimed."""
    spec = catalog.get(job.task)
    now = time.monotonic()
    limit = spec.timeout if spec is not None else 60.0
    if job.remaining is not None:
        limit = min(limit, max(job.remaining, 0.0))
    return Attempt(job, claim_id, spec, now, now + limit)

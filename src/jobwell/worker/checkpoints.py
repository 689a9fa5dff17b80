"""What attempts keep for the next one, fenced; and what becomes of it when an attempt is told to stop."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jobwell.client.client import Client
from jobwell.core.checkpoint import MAIN, Keeper, Walk, check_new
from jobwell.core.errors import TransactionMisuse
from jobwell.core.holding import Isolation
from jobwell.core.outcome import Lost
from jobwell.core.progress import Report
from jobwell.store import checkpoints
from jobwell.store.checkpoints import Fence
from jobwell.store.statements import Program, arun, run
from jobwell.worker import completing
from jobwell.worker.completing import AsyncEnding, Ending, in_time, through
from jobwell.worker.points import reached
from jobwell.worker.progress import Board, ChildBoard, heard
from jobwell.worker.record import Attempt
from jobwell.worker.steps import Ended

log = logging.getLogger("jobwell.worker")

PARTING = 1.5  # seconds for the cursors of an attempt that ends early; what is not saved is done twice


@dataclass(eq=False, slots=True)
class Keeping:
    """What the attempts of a worker store of themselves on their way.

    Attributes:
        client: of the app.
        board: of progress; None: nobody keeps it.
        result_limit: bytes of a result.
        leaving: whether the worker shuts down: loops that can go on elsewhere do so.
    """

    client: Client
    board: Board | ChildBoard | None
    result_limit: int
    leaving: bool = False

    def of(self, attempt: Attempt) -> "Held":
        """Of one attempt."""
        return Held(self, attempt)

    def heard(self, attempt: Attempt) -> Callable[[dict[str, Any]], None]:
        """Takes in what a child process says of the progress of its attempt."""
        board = self.board
        return lambda said: board.tell(attempt, heard(said)) if board is not None else None


@dataclass(eq=False, slots=True)
class Held:
    """The same for one attempt: what its context holds."""

    keeping: Keeping
    attempt: Attempt

    def keeper(self) -> Keeper:
        """Of checkpoints."""
        return AttemptKeeper(self.keeping, self.attempt)

    def progress(self, done: int, total: int | None, note: str) -> None:
        """To the board."""
        if self.keeping.board is not None:
            self.keeping.board.tell(self.attempt, Report(done, total, note))

    def transaction(self, source: Any | None, isolation: Isolation | None) -> AsyncEnding | Ending:
        """One that ends the job."""
        spec = self.attempt.spec
        kind = AsyncEnding if spec is not None and spec.coroutine else Ending
        return kind(self.attempt, self.keeping.client, self.keeping.result_limit, source, isolation)


class AttemptKeeper:
    """Keeps what one attempt saves, in the store."""

    __slots__ = ("_attempt", "_client", "_fence", "_keeping")

    def __init__(self, keeping: Keeping, attempt: Attempt) -> None:
        self._keeping = keeping
        self._client = keeping.client
        self._attempt = attempt
        self._fence = Fence(attempt.job.id, attempt.claim_id)

    def load(self, name: str) -> str | None:
        """What is kept under a name."""
        with self._client.connections.plain() as conn:
            return run(conn, checkpoints.load(self._client.statements, self._fence.job, name))

    async def aload(self, name: str) -> str | None:
        """As `load`, for async code."""
        async with self._client.connections.of_loop() as conn:
            return await arun(conn, checkpoints.load(self._client.statements, self._fence.job, name))

    def save(self, name: str, text: str | None, conn: Any | None) -> None:
        """Keep it.

        Raises:
            Lost: the job is another attempt's.
            TransactionMisuse: the job has ended, or the block that ends it is open and this would outlive it.
        """
        self._may_save(name, conn)
        reached("save: before")
        program = self._program(name, text)
        if conn is not None:
            kept = self._client.vouch(conn).run(self._bounded(program))
        else:
            with self._client.connections.plain() as own:
                kept = run(own, program)
        self._saved(kept=kept)

    async def asave(self, name: str, text: str | None, conn: Any | None) -> None:
        """As `save`, for async code."""
        self._may_save(name, conn)
        await self.keep(name, text, conn)

    async def keep(self, name: str, text: str | None, conn: Any | None) -> None:
        """Save it, also where the task's own code may save no more."""
        reached("save: before")
        program = self._program(name, text)
        if conn is not None:
            kept = await (await self._client.avouch(conn)).run(self._bounded(program))
        else:
            async with self._client.connections.of_loop() as own:
                kept = await arun(own, program)
        self._saved(kept=kept)

    def _program(self, name: str, text: str | None) -> Program[bool]:
        statements = self._client.statements
        if text is None:
            return checkpoints.clear(statements, self._fence, name)
        return checkpoints.save(statements, self._fence, name, text)

    def _bounded(self, program: Program[bool]) -> Program[bool]:
        return checkpoints.bounded(self._client.statements, program, in_time(self._attempt) + completing.MARGIN)

    def _may_save(self, name: str, conn: Any | None) -> None:
        if self._attempt.committed is not None:
            raise TransactionMisuse(
                "the job has ended with the block of ctx.transaction(), so there is no next attempt to keep for"
            )
        if self._attempt.in_block and name == MAIN and conn is None:
            raise TransactionMisuse(
                "ctx.checkpoint inside the block of ctx.transaction(): it would be kept although the block is rolled back, and"
                " the next attempt would begin behind rows that are not there. Save before the block: it is done as a whole, or"
                " not at all, and behind it there is no next attempt"
            )
        if self._attempt.ends_as is not None:  # a step is held, and the code has caught that
            raise Ended(self._attempt.ends_as.failure.message)

    def _saved(self, *, kept: bool) -> None:
        reached("save: after")
        if not kept:
            raise lost(self._attempt)

    def begin(self, name: str, walk: Walk) -> None:
        """A loop begins.

        Raises:
            TransactionMisuse: in a block of `ctx.transaction()`.
        """
        if self._attempt.in_block:
            raise TransactionMisuse(
                "ctx.resume inside the block of ctx.transaction(): its cursor would be saved although the block is rolled back,"
                " and the next attempt would pass over items whose rows are not there. Loop over the items themselves in the"
                " block: it is done as a whole, or not at all"
            )
        walks = self._attempt.walks = self._attempt.walks or {}
        check_new(name, walks)
        walks[name] = walk

    def told_to_stop(self) -> BaseException | None:
        """What ends a loop between two items: a shutdown from its first moment on; the grace is for those who need it."""
        attempt = self._attempt
        if attempt.stopped is None and not self._keeping.leaving:
            return None
        attempt.left_off = True  # a group of tasks takes the cancellation of one of them for nothing
        if attempt.stopped == "lost":
            return Lost("the job is another attempt's by now")
        attempt.stopped = attempt.stopped or "shutdown"
        return asyncio.CancelledError("told to stop; the job goes on at the next item")


def lost(attempt: Attempt) -> Lost:
    """The store has said that the job is not this attempt's any more: nothing is written from here on."""
    attempt.stopped = "lost"
    log.warning(
        "job %s (%s) is not this attempt's any more (its lease had ended, perhaps): it ends, and nothing of it is written",
        attempt.job.id, attempt.job.task,
    )  # fmt: skip
    return Lost("the job is another attempt's by now")


async def part(attempt: Attempt, keeping: Keeping) -> None:
    """An attempt ends early: save the cursors of its loops, so that nothing is done twice. A failure costs only that."""
    left = {name: walk for name, walk in (attempt.walks or {}).items() if walk.unsaved}
    if not left or attempt.stopped == "lost":
        return
    keeper = AttemptKeeper(keeping, attempt)

    async def save() -> None:
        for name, walk in left.items():
            await keeper.keep(name, walk.text(), None)

    try:
        await through(asyncio.wait_for(save(), PARTING))
    except Lost:
        pass
    except Exception as error:  # noqa: BLE001  the store is away, or the cursor cannot be stored: the attempt has its own end
        log.warning(
            "job %s: the cursor could not be saved (%s); the next attempt begins where it was saved last",
            attempt.job.id, str(error) or type(error).__name__,
        )  # fmt: skip

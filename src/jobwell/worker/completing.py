"""`ctx.transaction()`: what a task writes and the end of its job in one commit.

* the block runs in a transaction whose last statement ends the job, fenced by the claim id
* where the job is not ours any more, all of it is rolled back
* an answer to the COMMIT that is lost is looked for, while the lease lives, before anything is called a failure
* once it is known to be committed the attempt has succeeded, whatever happens after it in the task
"""

import asyncio
import logging
import time
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

import psycopg

from jobwell.client.client import Client
from jobwell.core import text
from jobwell.core.errors import DeclarationError, StoreUnavailable, TransactionMisuse
from jobwell.core.holding import Isolation
from jobwell.core.outcome import RESULT_NOT_KEPT, Committed, Expiring, Lost, Succeeded
from jobwell.store import checkpoints
from jobwell.store.checkpoints import Fence, Finish, Told
from jobwell.store.ending import LEVELS, AsyncHold, AsyncLent, AsyncOwn, Hold, Lent, Own
from jobwell.store.statements import Program, arun, run
from jobwell.worker.failures import MESSAGE_LIMIT, said
from jobwell.worker.points import reached
from jobwell.worker.record import Attempt
from jobwell.worker.steps import Ended

log = logging.getLogger("jobwell.worker")

T = TypeVar("T")
LOOK = 0.1  # seconds between two looks for what became of a COMMIT
MARGIN = 5.0  # seconds beyond an attempt's time for which a transaction of the task's may stand still with what it has locked
SHORTEST, LONGEST = 1.0, 86400.0  # seconds that a statement of the task's may take


def succeeded(attempt: Attempt, result: Any, limit: int) -> Succeeded:
    """The outcome of an attempt that returned this."""
    if result is None:
        return Succeeded()
    spec = attempt.spec
    assert spec is not None
    if not spec.keep_result:
        return Succeeded(None, RESULT_NOT_KEPT)
    # The work is done: a result that cannot be kept is a note, never another run.
    try:
        encoded = spec.signature.encode_result(result)
    except Exception as error:  # noqa: BLE001  a result may hold anything, also objects that raise when looked at
        return Succeeded(None, text.clean(f"its result could not be stored: {said(error)}", MESSAGE_LIMIT))
    if len(encoded) > limit:
        return Succeeded(None, f"its result takes {len(encoded):,} bytes and was not stored; the limit is {limit:,}")
    kept = encoded.decode()
    return Succeeded(kept) if spec.result_ttl is None else Expiring(kept, ttl=spec.result_ttl)


def after_commit(attempt: Attempt, result: Any, error: BaseException | None) -> Committed:
    """The outcome of an attempt whose transaction has ended its job; what came after it is only told."""
    assert attempt.committed is not None
    if error is not None and not isinstance(error, asyncio.CancelledError):
        log.error(
            "job %s (%s) has succeeded with its transaction; what its function raised behind it changes nothing: %s",
            attempt.job.id, attempt.job.task, said(error), exc_info=error,
        )  # fmt: skip
    elif result is not None and result is not attempt.answer:
        log.warning(
            "job %s (%s): what its function returned is not stored, since the job had ended with its transaction; set `tx.result`"
            " inside the block of ctx.transaction() instead",
            attempt.job.id, attempt.job.task,
        )  # fmt: skip
    return attempt.committed


def in_time(attempt: Attempt) -> float:
    """Seconds that are left of the attempt's time."""
    return min(max(attempt.limit_at - time.monotonic(), SHORTEST), LONGEST)


def _tell_new_day(error: Exception) -> None:
    """Refused by the table of finished jobs, whose partition of the day was attached in the same moment: no fault of the task's.

    Raises:
        StoreUnavailable: it was that; the next attempt finds the partition.
    """
    driver = getattr(error, "orig", None) or error
    if isinstance(driver, psycopg.errors.CheckViolation) and (driver.diag.table_name or "").startswith("finished"):
        raise StoreUnavailable("the table of finished jobs was being given a new day; nothing was written") from error


class _Ending:
    """What both colours share.

    Attributes:
        result: the job's result; set it before the block ends.
    """

    def __init__(
        self, attempt: Attempt, client: Client, result_limit: int, source: Any | None, isolation: Isolation | None
    ) -> None:
        if isolation is not None and isolation not in LEVELS:
            raise DeclarationError(f"ctx.transaction: isolation={isolation!r} must be one of {', '.join(LEVELS)}")
        self.result: Any = None
        self._attempt = attempt
        self._client = client
        self._limit = result_limit
        self._source = source
        self._isolation = isolation
        self._fence = Fence(attempt.job.id, attempt.claim_id)
        self._begun = False

    def _begin(self) -> None:
        if self._attempt.committed is not None:
            raise TransactionMisuse("the job has ended with an earlier ctx.transaction(); it ends once")
        if self._begun:
            raise TransactionMisuse("a ctx.transaction() is entered once; make another one")
        self._may()
        self._begun = self._attempt.in_block = True

    def _may(self) -> None:
        """Refuse to end the job where it is not to end so, although the task's code has caught that."""
        if self._attempt.ends_as is not None:
            raise Ended(self._attempt.ends_as.failure.message)
        if self._attempt.left_off:
            raise asyncio.CancelledError("a loop of ctx.resume was told to stop, so the job is not done: nothing is committed")

    def _bound(self) -> Program[None]:
        """Whatever becomes of the task (a plain one is left behind by its time limit), its locks hold nobody up for ever."""
        return checkpoints.bound(self._client.statements, in_time(self._attempt) + MARGIN)

    def _options(self) -> dict[str, Any]:
        database = self._client.database
        return {
            "seconds": in_time(self._attempt), "patience": database.settings.statement_timeout, "pooled": lambda: database.pooled,
        }  # fmt: skip

    def _finish(self) -> tuple[Committed, Finish]:
        end = succeeded(self._attempt, self.result, self._limit)
        ttl = end.ttl if isinstance(end, Expiring) else None
        return Committed(end.result, end.note), Finish(self._fence, end.result, end.note, ttl)

    def _last(self, finish: Finish) -> Program[bool]:
        told = self._attempt.told
        if told is not None:  # behind the end nobody could write it any more
            yield from checkpoints.tell_last(self._client.statements, Told(self._fence, told.done, told.total, told.note or None))
        return (yield from checkpoints.finish(self._client.statements, finish))

    def _must_be_ours(self, *, ours: bool) -> None:
        if not ours:
            raise self._lost()

    def _lost(self) -> Lost:
        self._attempt.stopped = "lost"
        log.warning(
            "job %s (%s) is not this attempt's any more: its transaction is rolled back",
            self._attempt.job.id,
            self._attempt.job.task,
        )
        return Lost("the job is another attempt's by now")

    def _committed(self, end: Committed) -> None:
        self._attempt.answer = self.result
        self._attempt.committed = end

    def _in_doubt(self, error: BaseException) -> None:
        log.warning(
            "job %s (%s): its commit raised (%s); looking whether it has taken effect",
            self._attempt.job.id, self._attempt.job.task, str(error) or type(error).__name__,
        )  # fmt: skip

    def _known(self, fate: str, end: Committed, error: BaseException) -> None:
        """What became of a commit that raised.

        Raises:
            Lost: the job is another attempt's.
            BaseException: the error itself: nothing was committed.
        """
        if fate == "done":
            self._committed(end)
        elif fate == "lost":
            raise self._lost() from error
        else:
            raise error


class Ending(_Ending):
    """`ctx.transaction()` of a plain task."""

    _hold: Hold

    def __enter__(self) -> Any:
        """Begin: the connection, or the session."""
        self._begin()
        if self._source is None:
            lend = self._client.endings.plain
            self._hold = Own(lambda: lend(in_time(self._attempt)), self._isolation, self._bound, **self._options())
        else:
            self._hold = Lent(self._source, self._isolation, self._bound, self._client.vouch)
        try:
            made = self._hold.open()
        except BaseException as error:
            self._attempt.in_block = False
            self._hold.undo(error)
            self._hold.close()
            raise
        reached("transaction: begun")
        return made

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Commit with the job's end, or roll back."""
        self._attempt.in_block = False
        try:
            if error is None:
                self._end()
            else:
                self._hold.undo(error)
        except BaseException as broken:
            self._hold.undo(broken)
            raise
        finally:
            self._hold.close()

    def _end(self) -> None:
        if self._attempt.stopped in {"timeout", "lost"}:  # a function that was left behind by its time limit
            raise asyncio.CancelledError("told to stop; the transaction is rolled back")
        self._may()
        end, finish = self._finish()
        reached("transaction: before the end")
        try:
            ours = self._hold.last(self._last(finish))
        except Exception as error:
            _tell_new_day(error)
            raise
        self._must_be_ours(ours=ours)
        reached("transaction: before commit")
        try:
            self._hold.commit()
        except BaseException as error:  # noqa: BLE001  whatever it was, the store knows what became of it
            self._in_doubt(error)
            self._hold.undo()  # so that nothing of ours keeps it open
            self._known(self._fate(), end, error)
        reached("transaction: committed")
        self._committed(end)
        reached("transaction: told")

    def _fate(self) -> str:
        while self._attempt.stopped != "lost":
            try:
                with self._client.connections.plain() as conn:
                    fate = run(conn, checkpoints.fate(self._client.statements, self._fence, self._attempt.job.attempt))
            except Exception as error:  # noqa: BLE001  whatever stands in the way: it is not to be taken for an answer
                log.info("job %s: what became of its commit is not known yet: %s", self._attempt.job.id, error)
            else:
                if fate != "open":
                    return fate
            time.sleep(LOOK)
        return "lost"


class AsyncEnding(_Ending):
    """`ctx.transaction()` of an async task."""

    _hold: AsyncHold

    async def __aenter__(self) -> Any:
        """Begin: the connection, or the session."""
        self._begin()
        if self._source is None:
            self._hold = AsyncOwn(
                lambda: self._client.endings.of_loop(in_time(self._attempt)), self._isolation, self._bound, **self._options()
            )
        else:
            self._hold = AsyncLent(self._source, self._isolation, self._bound, self._client.avouch)
        try:
            made = await self._hold.open()
        except BaseException as error:
            self._attempt.in_block = False
            await through(self._undone(error))
            raise
        reached("transaction: begun")
        return made

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Commit with the job's end, or roll back. Nothing interrupts either: what has become of it must be known."""
        self._attempt.in_block = False
        await through(self._undone(error) if error is not None else self._ended())

    async def _undone(self, error: BaseException) -> None:
        try:
            await self._hold.undo(error)
        finally:
            await self._hold.close()

    async def _ended(self) -> None:
        try:
            await self._end()
        except BaseException as error:
            await self._hold.undo(error)
            raise
        finally:
            await self._hold.close()

    async def _end(self) -> None:
        self._may()
        end, finish = self._finish()
        reached("transaction: before the end")
        try:
            ours = await self._hold.last(self._last(finish))
        except Exception as error:
            _tell_new_day(error)
            raise
        self._must_be_ours(ours=ours)
        reached("transaction: before commit")
        try:
            await self._hold.commit()
        except BaseException as error:  # noqa: BLE001  whatever it was, the store knows what became of it
            self._in_doubt(error)
            await self._hold.undo()  # so that nothing of ours keeps it open
            self._known(await self._fate(), end, error)
        reached("transaction: committed")
        self._committed(end)
        reached("transaction: told")

    async def _fate(self) -> str:
        while self._attempt.stopped != "lost":
            try:
                async with self._client.connections.of_loop() as conn:
                    fate = await arun(conn, checkpoints.fate(self._client.statements, self._fence, self._attempt.job.attempt))
            except Exception as error:  # noqa: BLE001  whatever stands in the way: it is not to be taken for an answer
                log.info("job %s: what became of its commit is not known yet: %s", self._attempt.job.id, error)
            else:
                if fate != "open":
                    return fate
            await asyncio.sleep(LOOK)
        return "lost"


async def through(call: Coroutine[Any, Any, T]) -> T:
    """Await something to its end, however often this task is cancelled meanwhile."""
    task = asyncio.ensure_future(call)
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:  # the time limit says it again at each of its looks
            continue
    return task.result()

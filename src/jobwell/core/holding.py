"""What an attempt stores of itself on its way, as its context sees it: checkpoints, progress, a transaction that ends the job."""

from abc import abstractmethod
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar

from jobwell.core import resume
from jobwell.core.checkpoint import Checkpoint, Keeper, SyncCheckpoint
from jobwell.core.errors import TransactionMisuse
from jobwell.core.progress import report

T = TypeVar("T")

Isolation = Literal["read committed", "repeatable read", "serializable"]


class AsyncTransaction(Protocol):
    """A transaction that ends the job: what `ctx.transaction()` of an async task returns, for `async with`.

    Attributes:
        result: the job's result; set it before the block ends.
    """

    result: Any

    async def __aenter__(self) -> Any:
        """Begin: the connection, or the session."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Commit with the job's end, or roll back."""


class Transaction(Protocol):
    """The same of a plain task, for `with`.

    Attributes:
        result: the job's result; set it before the block ends.
    """

    result: Any

    def __enter__(self) -> Any:
        """Begin: the connection, or the session."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool | None:
        """Commit with the job's end, or roll back."""


class Holding(Protocol):
    """What an attempt stores of itself on its way; the worker has it."""

    def keeper(self) -> Keeper:
        """Of checkpoints."""

    def progress(self, done: int, total: int | None, note: str) -> None:
        """Tell how far it is."""

    def transaction(self, source: Any | None, isolation: Isolation | None) -> Any:
        """One that ends the job."""


class Holds:
    """Of a context: what it calls of these. Its class has the slots."""

    __slots__ = ()

    _holding: Callable[[], Holding] | None

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        """Tell how far the job is: `ctx.progress(1200, 5000, "letters sent")`. Costs nothing to call often; never waits.

        At most one word a second is stored, and the last one; they are seen in `jobwell jobs show` and by `job.progress()`. A
        `total` that was passed grows with `done`, and within one attempt a smaller `done` of the same total is passed over.

        Args:
            done: so many.
            total: of so many, as far as is known.
            note: a few words; 500 characters are kept.

        Raises:
            InvalidArguments: no whole numbers, or negative ones.
        """
        told = report(done, total, note)
        if self._holding is not None:
            self._holding().progress(told.done, told.total, told.note)

    @abstractmethod
    def _kept(self) -> Keeper: ...

    def _ending(self, source: Any | None, isolation: Isolation | None) -> Any:
        if self._holding is None:
            raise TransactionMisuse(
                "ctx.transaction() ends a job together with what you write, and here the task was called directly, so there is no"
                " job to end. Enqueue it (in tests: `testbed.drain()`), or keep the work in a function that takes a connection"
            )
        return self._holding().transaction(source, isolation)


class AsyncHolds(Holds):
    """Of the context of an async task."""

    __slots__ = ()

    def resume(
        self,
        items: Iterable[T] | AsyncIterable[T] | Callable[[Any], Iterable[T] | AsyncIterable[T] | Awaitable[Iterable[T]]],
        *,
        every: int = 100,
        key: Callable[[T], Any] | None = None,
        name: str = resume.NAME,
    ) -> resume.AsyncResume[T]:
        """A loop that goes on where it was: `async for person in ctx.resume(people, every=100): …`, in whatever attempt.

        An item is done when the next one is asked for. The cursor is saved after every so many, at the end, when the attempt
        fails, and when the worker shuts down: then the job goes back at the next item, and spends no attempt. After the death of
        a process at most `every` items are done twice.

        Args:
            items: in an order that is the same in each attempt: a sequence, an iterable (sync or async); or a function that is
                given the cursor (None at first) and returns those behind it, such as `lambda after: rows_after(after)`.
            every: items between two saves.
            key: gives the id of an item: the cursor then. Without it the cursor is a count; for a function it is the item itself.
            name: of this loop, where a task has several.

        Raises:
            CheckpointMismatch: with `key`: the item of the cursor is not among the items any more.
            DeclarationError, InvalidArguments: it is used wrongly, or the cursor cannot be stored.
        """
        return resume.AsyncResume(self._kept(), items, every=every, key=key, name=name)

    @property
    def checkpoint(self) -> Checkpoint:
        """What the next attempt begins with: `await ctx.checkpoint.load(Cursor)`, `await ctx.checkpoint.save(cursor)`."""
        return Checkpoint(self._kept())

    def transaction(self, source: Any | None = None, *, isolation: Isolation | None = None) -> AsyncTransaction:
        """What is written in the block and the end of the job commit together: `async with ctx.transaction() as conn: …`.

        The block is the last thing that the task does. Where it raises, or the job is another attempt's by then, all of it is
        rolled back; when it has ended well the job has succeeded, whatever happens to the process. The result is what you set:
        `async with (tx := ctx.transaction()) as conn: …; tx.result = …`. In the database the work so happens exactly once.

        Args:
            source: nothing, for a psycopg AsyncConnection to the store's database; or an AsyncEngine or async_sessionmaker of
                SQLAlchemy that leads there, for an AsyncConnection or an AsyncSession.
            isolation: of the transaction, "repeatable read" or "serializable"; a conflict is a temporary failure.

        Raises:
            TransactionMisuse: it leads elsewhere, is used twice, or was ended inside the block.
            Lost: the job is another attempt's by now; nothing was written. Let it pass.
        """
        made: AsyncTransaction = self._ending(source, isolation)
        return made


class PlainHolds(Holds):
    """Of the context of a plain task."""

    __slots__ = ()

    def resume(
        self,
        items: Iterable[T] | Callable[[Any], Iterable[T]],
        *,
        every: int = 100,
        key: Callable[[T], Any] | None = None,
        name: str = resume.NAME,
    ) -> resume.Resume[T]:
        """A loop that goes on where it was: `for person in ctx.resume(people, every=100): …`, in whatever attempt.

        An item is done when the next one is asked for. The cursor is saved after every so many, at the end, when the attempt
        fails, and when the worker shuts down: then the job goes back at the next item, and spends no attempt. After the death of
        a process at most `every` items are done twice.

        Args:
            items: in an order that is the same in each attempt: a sequence, an iterable; or a function that is
                given the cursor (None at first) and returns those behind it, such as `lambda after: rows_after(after)`.
            every: items between two saves.
            key: gives the id of an item: the cursor then. Without it the cursor is a count; for a function it is the item itself.
            name: of this loop, where a task has several.

        Raises:
            CheckpointMismatch: with `key`: the item of the cursor is not among the items any more.
            DeclarationError, InvalidArguments: it is used wrongly, or the cursor cannot be stored.
        """
        return resume.Resume(self._kept(), items, every=every, key=key, name=name)

    @property
    def checkpoint(self) -> SyncCheckpoint:
        """What the next attempt of this job begins with: `ctx.checkpoint.load(Cursor)`, `ctx.checkpoint.save(cursor)`."""
        return SyncCheckpoint(self._kept())

    def transaction(self, source: Any | None = None, *, isolation: Isolation | None = None) -> Transaction:
        """What is written in the block and the end of the job commit together: `with ctx.transaction() as conn: …`.

        As for async tasks: the block is the last thing that the task does, and its end the end of the job.

        Args:
            source: nothing, for a psycopg Connection to the store's database; or an Engine or sessionmaker of SQLAlchemy that
                leads there, for a Connection or a Session.
            isolation: of the transaction, "repeatable read" or "serializable"; a conflict is a temporary failure.

        Raises:
            TransactionMisuse: it leads elsewhere, is used twice, or was ended inside the block.
            Lost: the job is another attempt's by now; nothing was written. Let it pass.
        """
        made: Transaction = self._ending(source, isolation)
        return made

"""The items of a job as a stage's function sees them, and what becomes of them."""

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from random import random
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload
from uuid import UUID

from jobwell.core import text
from jobwell.core.classify import Verdict
from jobwell.core.duration import Duration, seconds
from jobwell.core.retry import Retries, RetryRule, matching, next_attempt
from jobwell.runs.token import token_of
from jobwell.store.runs import Ended

if TYPE_CHECKING:
    from jobwell.runs.work import Transaction, Work

T = TypeVar("T")
GROUP = 50  # items that are passed over before they are recorded
SPELL = 1.0  # seconds after which they are recorded, however few
LONGEST_CODE, LONGEST_MESSAGE = 200, 1000


class Item(Generic[T]):
    """One record in one stage. What is not marked is done when the function returns.

    Attributes:
        data: the record, as the operation's `item=` has it.
        key: what tells it apart.
        attempt: how often this stage has begun with it, this time included.
        run: the id of the run.
        no: its number in the run.
    """

    __slots__ = ("_delay", "_secret", "_stage", "_tries", "attempt", "code", "data", "key", "message", "no", "run", "state")

    def __init__(self, *, run: UUID, stage: int, no: int, key: str, data: T, attempt: int, tries: int, secret: UUID) -> None:
        self.run = run
        self.no = no
        self.key = key
        self.data = data
        self.attempt = attempt
        self.state: str | None = None
        self.code: str | None = None
        self.message: str | None = None
        self._stage = stage
        self._tries = tries
        self._secret = secret
        self._delay: tuple[Duration | None] | None = None

    def fail(self, code: str, message: str = "") -> None:
        """It has failed, and waits for a person: the code groups such failures, the message is for people."""
        self._mark("failed", code, message)

    def skip(self, reason: str) -> None:
        """There is nothing to do for it; it goes on to no further stage."""
        self._mark("skipped", None, reason)

    def retry(self, reason: str = "", *, after: Duration | None = None) -> None:
        """Try it again later, alone, by the retry rule of the stage; when its attempts are used up it has failed as `exhausted`.

        Args:
            reason: for people.
            after: not before so long from now.
        """
        self._mark("open", None, reason)
        self._delay = (after,)

    def done(self) -> None:
        """It is done, as it would be without a word."""
        self._mark("done", None, None)

    @property
    def idempotency_key(self) -> str:
        """Give it to outside calls: the same in every attempt of this item in this stage."""
        return f"{self.run}.{self._stage}.{self.no}"

    @property
    def token(self) -> str:
        """Give it to a gateway: `app.runs.deliver(token, "delivered")` tells later what became of the message."""
        return token_of(self._secret, self.run, self._stage, self.no)

    def _mark(self, state: str, code: str | None, message: str | None) -> None:
        self.state = state
        self.code = text.clean(str(code), LONGEST_CODE) if code is not None else None
        self.message = text.clean(str(message), LONGEST_MESSAGE) if message else None
        self._delay = None

    def ended(self, job: UUID, claim: UUID, rule: RetryRule | Retries) -> Ended:
        """For the store."""
        state, code, message, delay = self.state or "done", self.code, self.message, 0.0
        if self._delay is not None:
            (after,) = self._delay
            asked = None if after is None else seconds(after, "after")
            plan = next_attempt(
                matching(rule, Verdict("temporary")).rule,
                failures=self._tries + 1,
                kind="temporary",
                asked=asked,
                remaining=None,
                uniform=random,
            )
            if isinstance(plan, str):
                state, code = "failed", "exhausted"
            else:
                delay = plan.delay
        return Ended(job, claim, self.run, self._stage, self.no, state, code, message, delay)

    def __repr__(self) -> str:
        return f"<item {self.key}>"


class Items(Sequence[Item[T]]):
    """The items of one job.

    * `for item in items`: all are recorded when the function returns; if it raises, none of them is, and the job is tried again.
    * `async for item in items`, or in a plain function `for item in items.each()`: recorded as the loop goes on, in groups, so
      that a job that dies goes on behind the last recorded one. A run that is paused or cancelled ends the loop.
    * `items.pieces(100)`: the same by pieces, each with a transaction of its own, if you like.
    """

    def __init__(self, work: "Work", items: list[Item[T]]) -> None:
        self._work = work
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, at: int) -> Item[T]: ...
    @overload
    def __getitem__(self, at: slice) -> "Items[T]": ...
    def __getitem__(self, at: int | slice) -> "Item[T] | Items[T]":
        return Items(self._work, self._items[at]) if isinstance(at, slice) else self._items[at]

    def __iter__(self) -> Iterator[Item[T]]:
        return iter(self._items)

    async def __aiter__(self) -> AsyncIterator[Item[T]]:
        pace = _Pace(self._work, self._items)
        for item in self._items:
            self._work.come_to([item])
            yield item
            if pace.passed(item):
                await self._work.arecord(pace.take())
                if not self._work.going:
                    return
        await self._work.arecord(pace.take())

    def each(self) -> Iterator[Item[T]]:
        """As `async for`, in a plain function."""
        pace = _Pace(self._work, self._items)
        for item in self._items:
            self._work.come_to([item])
            yield item
            if pace.passed(item):
                self._work.record(pace.take())
                if not self._work.going:
                    return
        self._work.record(pace.take())

    def pieces(self, size: int) -> "Pieces[T]":
        """The items in pieces of so many: each is recorded when the loop goes on to the next."""
        return Pieces(self._work, self._items, size)

    def transaction(self) -> "Transaction":
        """`async with items.transaction() as conn:`, or `with` in a plain function.

        What is written over this psycopg connection to the store's database and the states of these items commit together; an
        error undoes both.

        Raises:
            Conflict: at its end: the job belongs to another worker by now. Everything is rolled back.
        """
        return self._work.transaction(self._items)


class Pieces(Generic[T]):
    """What `items.pieces(n)` gives: `async for piece in …`, or `for piece in …` in a plain function."""

    def __init__(self, work: "Work", items: list[Item[T]], size: int) -> None:
        self._work = work
        self._pieces = [items[at : at + max(1, size)] for at in range(0, len(items), max(1, size))]
        work.expect(items)

    async def __aiter__(self) -> AsyncIterator[Items[T]]:
        for piece in self._pieces:
            self._work.come_to(piece)
            yield Items(self._work, piece)
            await self._work.arecord(self._work.pass_over(piece))
            if not self._work.going:
                return

    def __iter__(self) -> Iterator[Items[T]]:
        for piece in self._pieces:
            self._work.come_to(piece)
            yield Items(self._work, piece)
            self._work.record(self._work.pass_over(piece))
            if not self._work.going:
                return


class _Pace:
    """What a loop has passed over and not recorded yet."""

    def __init__(self, work: "Work", items: list[Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._work = work
        self._clock = clock
        self._last = clock()
        work.expect(items)

    def passed(self, item: Item[Any]) -> bool:
        """Note one. True: it is time to record."""
        self._work.pass_over([item])
        return len(self._work.passed) >= GROUP or self._clock() - self._last >= SPELL

    def take(self) -> list[Item[Any]]:
        """What is to be recorded."""
        self._last = self._clock()
        return list(self._work.passed)

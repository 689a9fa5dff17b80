"""`ctx.resume(items)`: a loop over many items that goes on where it was, in whatever attempt.

An item is done when the next one is asked for. The cursor is saved after every so many, at the end, and when the loop is told to
stop; so what is done twice after the death of a process is what was done since the last save, and nothing otherwise.
"""

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from jobwell.core.checkpoint import Keeper, cursor_of, read_cursor
from jobwell.core.errors import CheckpointMismatch, DeclarationError

T = TypeVar("T")
NAME = "items"
LONGEST_NAME = 100


class _Walk(Generic[T]):
    """What both colours share: where it is, and what is skipped."""

    def __init__(self, keeper: Keeper, items: Any, *, every: int, key: Callable[[T], Any] | None, name: str) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise DeclarationError(f"ctx.resume: every={every!r} must be a number of items, 1 or more")
        if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
            raise DeclarationError(f"ctx.resume: name={name!r} must be a short text")
        is_stream = isinstance(items, Iterable | AsyncIterable)
        if not is_stream and not callable(items):
            raise DeclarationError(
                f"ctx.resume({type(items).__name__}): give items that can be iterated over, or a function that is given the"
                " cursor and returns those behind it"
            )
        self.name = name
        self.done = 0  # items of all attempts
        self.unsaved = 0
        self._keeper = keeper
        self._items = items
        self._is_stream = is_stream
        self._every = every
        self._key = key
        self._cursor: Any = None
        self._to_skip = 0
        self._sought = False  # the item of the cursor is not found yet

    def text(self) -> str:
        """The cursor as it is stored."""
        return cursor_of(self._cursor, self.done)

    def _begin(self, stored: str | None) -> Any:
        """What to iterate over, perhaps after an await."""
        if stored is not None:
            self._cursor, self.done = read_cursor(stored)
        if not self._is_stream:
            return self._items(self._cursor)
        self._sought = self._key is not None and self.done > 0
        self._to_skip = 0 if self._sought else self.done
        if isinstance(self._items, Sequence):
            start, self._to_skip = self._to_skip, 0
            return islice(self._items, start, None)
        return self._items

    def _skips(self, item: T) -> bool:
        if self._to_skip > 0:
            self._to_skip -= 1
            return True
        if self._sought:
            assert self._key is not None
            self._sought = self._key(item) != self._cursor
            return True
        return False

    def _past(self, item: T) -> bool:
        """An item is done. True: it is time to save."""
        if self._key is not None:
            self._cursor = self._key(item)
        elif not self._is_stream:
            self._cursor = item
        self.done += 1
        self.unsaved += 1
        return self.unsaved >= self._every

    def _check_found(self) -> None:
        if self._sought:
            raise CheckpointMismatch(
                f"ctx.resume: the item {self._cursor!r}, behind which this job is to go on, is not among the items any more; give"
                " items in a stable order, or a function that is given the cursor and returns those behind it",
                raw=self.text(),
            )


class AsyncResume(_Walk[T]):
    """The loop of an async task."""

    def __aiter__(self) -> AsyncIterator[T]:
        """Begin."""
        return self._walk()

    async def _walk(self) -> AsyncIterator[T]:
        self._keeper.begin(self.name, self)
        source = self._begin(await self._keeper.aload(self.name))
        if inspect.isawaitable(source):
            source = await source
        async for item in _each(source):
            if self._skips(item):
                continue
            order = self._keeper.told_to_stop()
            if order is not None:
                await self._save()
                raise order
            yield item
            if self._past(item):
                await self._save()
        self._check_found()
        await self._save()

    async def _save(self) -> None:
        if self.unsaved:
            await self._keeper.asave(self.name, self.text(), None)
            self.unsaved = 0


class Resume(_Walk[T]):
    """The loop of a plain task."""

    def __iter__(self) -> Iterator[T]:
        """Begin."""
        self._keeper.begin(self.name, self)
        for item in self._begin(self._keeper.load(self.name)):
            if self._skips(item):
                continue
            order = self._keeper.told_to_stop()
            if order is not None:
                self._save()
                raise order
            yield item
            if self._past(item):
                self._save()
        self._check_found()
        self._save()

    def _save(self) -> None:
        if self.unsaved:
            self._keeper.save(self.name, self.text(), None)
            self.unsaved = 0


async def _each(source: Any) -> AsyncIterator[Any]:
    if isinstance(source, AsyncIterable):
        async for item in source:
            yield item
    else:
        for item in source:
            yield item

"""What a job keeps for its next attempt: how it is written and read, and what the task calls. A keeper knows where."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, cast, overload

from jobwell.core.envelope import class_name, decode, encode
from jobwell.core.errors import CheckpointMismatch, DeclarationError, InvalidArguments
from jobwell.core.signature import classes_of

T = TypeVar("T")
LARGEST = 64 * 1024  # bytes: it is written again at each save
PLAIN = frozenset((str, int, float, bool, bytes, type(None)))  # in which no class hides
MAIN = ""  # the name of `ctx.checkpoint`; loops of `ctx.resume` have others


class Walk(Protocol):
    """A loop of `ctx.resume` that is under way."""

    @property
    def unsaved(self) -> int:
        """Items that are done, and not in the saved cursor."""

    def text(self) -> str:
        """The cursor as it would be saved."""


class Keeper(Protocol):
    """Keeps what one attempt saves."""

    def load(self, name: str) -> str | None:
        """What is kept under a name."""

    async def aload(self, name: str) -> str | None:
        """The same for async code."""

    def save(self, name: str, text: str | None, conn: Any | None) -> None:
        """Keep it, or with None keep it no longer; over a connection of the caller's where one is given."""

    async def asave(self, name: str, text: str | None, conn: Any | None) -> None:
        """The same for async code."""

    def begin(self, name: str, walk: Walk) -> None:
        """A loop begins."""

    def told_to_stop(self) -> BaseException | None:
        """What a loop is to raise when it has saved; None: it may go on."""


class LocalKeeper:
    """In memory, for a task that is called directly."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}
        self._walks: set[str] = set()

    def load(self, name: str) -> str | None:
        """What was saved in this call."""
        return self._kept.get(name)

    async def aload(self, name: str) -> str | None:
        """As `load`."""
        return self.load(name)

    def save(self, name: str, text: str | None, conn: Any | None) -> None:
        """Keep it for this call."""
        if text is None:
            self._kept.pop(name, None)
        else:
            self._kept[name] = text

    async def asave(self, name: str, text: str | None, conn: Any | None) -> None:
        """As `save`."""
        self.save(name, text, conn)

    def begin(self, name: str, walk: Walk) -> None:
        """As in a worker, each loop has a name of its own."""
        check_new(name, self._walks)
        self._walks.add(name)

    def told_to_stop(self) -> BaseException | None:
        """Never."""
        return None


def check_new(name: str, begun: "set[str] | Mapping[str, Walk]") -> None:
    """Refuse a second loop of the same name.

    Raises:
        DeclarationError: with what to do.
    """
    if name in begun:
        raise DeclarationError(
            f"this attempt has a loop of ctx.resume(…, name={name!r}) already; a second one would go on where the first"
            " ended: give each a name of its own"
        )


# --- written and read ----------------------------------------------------------------------------------------------------


def encoded(value: Any) -> str:
    """As it is stored.

    Raises:
        InvalidArguments: it cannot be stored, or is too large.
    """
    found = encode(value, _classes_in(value), "checkpoint")
    if len(found) > LARGEST:
        raise InvalidArguments(
            f"checkpoint: it takes {len(found):,} bytes, and {LARGEST:,} are the most; keep a cursor or an id in it, and the data"
            " in your own tables. Nothing was saved",
            "checkpoint",
        )
    return found.decode()


def _classes_in(value: Any) -> dict[str, type]:
    """The classes that stand in a value, by the names under which they are stored."""
    found: dict[str, type] = {}
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            waiting += each
        elif type(each) not in PLAIN and class_name(type(each)) not in found:
            found |= classes_of(type(each))
    return found


def decoded(text: str, kind: Any) -> Any:
    """Read it as this type.

    Raises:
        CheckpointMismatch: it does not fit.
        DeclarationError: nothing can be read as this type.
    """
    try:
        known = classes_of(kind) if kind is not Any else {}
        value = decode(text, known)
        return value if kind is Any else _checker(kind).validate_python(value)
    except (InvalidArguments, ValueError) as error:
        what = "plain values" if kind is Any else getattr(kind, "__name__", str(kind))
        said = str(error).removesuffix("; nothing was enqueued").splitlines()
        raise CheckpointMismatch(
            f"the checkpoint of this job does not fit {what}: {': '.join(said[:2])}. Another release has saved it, or the type"
            " has changed since; give fields that are new a default, or begin anew",
            raw=text,
        ) from None


def _checker(kind: Any) -> Any:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

    try:
        return TypeAdapter(kind).validator
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        said = str(error).splitlines()[0]
        raise DeclarationError(f"ctx.checkpoint.load({kind!r}): nothing can be read as this type ({said})") from None


# --- what the task calls -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """`ctx.checkpoint` of an async task: one value that the next attempt begins with."""

    _keeper: Keeper

    @overload
    async def load(self) -> Any: ...
    @overload
    async def load(self, kind: type[T]) -> T | None: ...
    @overload
    async def load(self, kind: type[T], default: T) -> T: ...
    async def load(self, kind: Any = Any, default: Any = None) -> Any:
        """What an earlier attempt of this job has saved.

        Args:
            kind: the type: a pydantic model, a dataclass, or any other type of an argument (default: plain values as they are).
            default: where nothing was saved.

        Raises:
            CheckpointMismatch: it does not fit the type.
            StoreUnavailable: the database cannot be reached.
        """
        text = await self._keeper.aload(MAIN)
        return default if text is None else decoded(text, kind)

    async def save(self, value: Any, *, conn: Any | None = None) -> None:
        """Keep a value in place of the one before. When this returns, the next attempt will find it.

        Args:
            value: a pydantic model, a dataclass, or plain values, as arguments of tasks; 64 KB at the most.
            conn: your connection or session, as `app.within` takes it: the value is kept if and only if your transaction commits.
                Until then nobody else can have the job, so what you write in it happens once.

        Raises:
            InvalidArguments: it cannot be stored.
            StoreUnavailable: the database cannot be reached, or its answer was lost: then it may be saved.
            Lost: the job is another attempt's by now; nothing was written. Let it pass: it ends this attempt in silence.
        """
        await self._keeper.asave(MAIN, encoded(value), conn)

    async def clear(self, *, conn: Any | None = None) -> None:
        """Keep nothing any more. Raises as `save`."""
        await self._keeper.asave(MAIN, None, conn)


@dataclasses.dataclass(frozen=True, slots=True)
class SyncCheckpoint:
    """`ctx.checkpoint` of a plain task: one value that the next attempt begins with."""

    _keeper: Keeper

    @overload
    def load(self) -> Any: ...
    @overload
    def load(self, kind: type[T]) -> T | None: ...
    @overload
    def load(self, kind: type[T], default: T) -> T: ...
    def load(self, kind: Any = Any, default: Any = None) -> Any:
        """What an earlier attempt of this job has saved. As `Checkpoint.load`."""
        text = self._keeper.load(MAIN)
        return default if text is None else decoded(text, kind)

    def save(self, value: Any, *, conn: Any | None = None) -> None:
        """Keep a value in place of the one before. As `Checkpoint.save`."""
        self._keeper.save(MAIN, encoded(value), conn)

    def clear(self, *, conn: Any | None = None) -> None:
        """Keep nothing any more. As `Checkpoint.clear`."""
        self._keeper.save(MAIN, None, conn)


def cursor_of(value: Any, done: int) -> str:
    """A loop's cursor as it is stored.

    Raises:
        InvalidArguments: the value is nothing plain.
    """
    try:
        return encode({"done": done} if value is None else {"done": done, "at": value}, {}, "cursor").decode()
    except InvalidArguments as error:
        raise InvalidArguments(
            f"ctx.resume: the cursor cannot be stored ({error.message}); say key= with a function that gives the item's id",
            "cursor",
        ) from None


def read_cursor(text: str) -> tuple[Any, int]:
    """The same back: the value, and how many items were done."""
    found = cast("dict[str, Any]", decode(text, {}))
    return found.get("at"), int(found["done"])

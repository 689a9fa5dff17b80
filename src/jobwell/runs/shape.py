"""What items and parameters look like: checked, made into JSON, and read again."""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import orjson

from jobwell.core import text
from jobwell.core.errors import DeclarationError, InvalidArguments
from jobwell.core.runs import BadRow
from jobwell.core.text import storable
from jobwell.store.run_items import BLOCK, BLOCK_BYTES, Block

LONGEST_KEY = 200
LARGEST_ITEM = 64 * 1024
MOST_BAD = 10_000  # entries of the list of bad rows; all are counted
SHOWN = 200  # characters of a bad value


class Shape:
    """A type, as pydantic understands it: a model, a dataclass, a typed dict; None: a plain dict.

    Args:
        kind: the type.
        who: for errors.
    """

    def __init__(self, kind: Any, who: str) -> None:
        self.kind = kind
        self._who = who

    @cached_property
    def _adapter(self) -> Any:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        try:
            return TypeAdapter(dict[str, Any] if self.kind is None else self.kind)
        except PydanticUserError as error:
            raise DeclarationError(f"{self._who}: pydantic cannot check it: {str(error).splitlines()[0]}") from error

    @cached_property
    def _serializer(self) -> Any:
        return self._adapter.serializer

    @cached_property
    def _validator(self) -> Any:
        return self._adapter.validator

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The JSON schema of each field, as it is stored; empty: any fields."""
        found: dict[str, Any] = self._adapter.json_schema(mode="serialization").get("properties", {})
        return found

    def check(self, value: Any) -> Any:
        """The value as the type has it.

        Raises:
            ValueError: pydantic's, with all that is wrong.
        """
        return self._validator.validate_python(value)

    def dump(self, value: Any) -> bytes:
        """As JSON."""
        found: bytes = self._serializer.to_json(value)
        return found

    def load(self, stored: str) -> Any:
        """From JSON."""
        return self._validator.validate_json(stored)


class ItemShape(Shape):
    """What items look like.

    Args:
        kind: the type.
        key: the name of the field that tells items apart, or a function of the item.
        who: for errors.
    """

    def __init__(self, kind: Any, key: str | Callable[[Any], Any], who: str) -> None:
        super().__init__(kind, who)
        self._key = key

    def key_of(self, item: Any) -> str:
        """Its key.

        Raises:
            ValueError: there is none, or it cannot be stored.
        """
        try:
            found = (
                self._key(item)
                if callable(self._key)
                else item[self._key]
                if isinstance(item, dict)
                else getattr(item, self._key)
            )
        except (KeyError, AttributeError):
            raise ValueError("there is no such field") from None
        key = "" if found is None else str(found)
        if not key or len(key) > LONGEST_KEY or not storable(key):
            raise ValueError(f"a key has 1 to {LONGEST_KEY} characters that can be stored")
        return key

    def row(self, value: Any, number: int) -> tuple[str, bytes] | list[BadRow]:
        """Key and JSON of one row; or what is wrong with it."""
        try:
            item = self.check(value)
        except ValueError as error:
            return list(_bad(error, number))
        try:
            key = self.key_of(item)
        except ValueError as error:
            return [BadRow(number, self._key if isinstance(self._key, str) else "key", str(error), None)]
        data = self.dump(item)
        if len(data) > LARGEST_ITEM:
            return [BadRow(number, "", f"it takes {len(data):,} bytes; an item has at most {LARGEST_ITEM:,}", None)]
        if b"\\u0000" in data or not data.startswith(b"{"):
            return [BadRow(number, "", "it holds a NUL character, or is no object with named fields", None)]
        return key, data

    def blocks(self, rows: Iterable[Any]) -> Iterator[Block]:
        """Checked blocks of rows."""
        filling = Filling(self)
        for value in rows:
            if filling.add(value):
                yield filling.take()
        if filling:
            yield filling.take()

    def load(self, stored: str) -> Any:
        """From JSON."""
        return super().load(stored) if self.kind is not None else orjson.loads(stored)


class Filling:
    """The block that is being filled. Rows are counted on over all of them."""

    def __init__(self, shape: ItemShape) -> None:
        self._shape = shape
        self._number = 0
        self._listed = 0
        self._begin()

    def _begin(self) -> None:
        self._block = Block()
        self._keys: set[str] = set()
        self._size = 0

    def add(self, value: Any) -> bool:
        """Take a row. True: the block is full."""
        self._number = getattr(value, "number", self._number + 1)
        found = self._shape.row(value, self._number)
        block = self._block
        if isinstance(found, list):
            block.bad_count += 1
            room = max(0, MOST_BAD - self._listed)
            block.bad += found[:room]
            self._listed += len(found[:room])
        elif found[0] in self._keys:
            block.duplicates += 1
        else:
            self._keys.add(found[0])
            block.keys.append(found[0])
            block.data.append(found[1])
            self._size += len(found[1])
        return len(block.keys) >= BLOCK or self._size >= BLOCK_BYTES or len(block.bad) >= BLOCK

    def take(self) -> Block:
        """The block, and begin another."""
        block = self._block
        self._begin()
        return block

    def __bool__(self) -> bool:
        block = self._block
        return bool(block.keys or block.bad_count or block.duplicates)


def _bad(error: ValueError, number: int) -> Iterator[BadRow]:
    listed = getattr(error, "errors", None)
    if listed is None:
        yield BadRow(number, "", text.clean(str(error), 500), None)
        return
    for one in listed(include_url=False, include_context=False):
        place = ".".join(str(part) for part in one["loc"])
        value = one.get("input")
        shown = None if one["type"] == "missing" or isinstance(value, dict) else text.clean(str(value), SHOWN)
        yield BadRow(number, text.clean(place, 200), text.clean(str(one["msg"]), 500), shown)


def params_of(shape: Shape, given: Any, who: str) -> str | None:
    """Parameters as they are stored.

    Raises:
        InvalidArguments: they do not fit.
    """
    if shape.kind is None and given is None:
        return None
    try:
        stored = shape.dump(shape.check(given)).decode()
    except ValueError as error:
        wrong = next(iter(_bad(error, 0)))
        where = f"{wrong.field}: " if wrong.field else ""
        raise InvalidArguments(f"{who}: params: {where}{wrong.reason}; nothing was started", wrong.field) from None
    if "\\u0000" in stored:
        raise InvalidArguments(f"{who}: params hold a NUL character, which cannot be stored; nothing was started")
    return stored

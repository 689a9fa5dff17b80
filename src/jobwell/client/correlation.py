"""What every job enqueued here carries: request_id, initiator and the like; a job's children inherit it."""

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar
from uuid import UUID

import orjson

from jobwell.core.errors import EnqueueError
from jobwell.core.text import storable

# The encoded form is what is needed, once per job; it is made once per context. An attempt leaves what it would take
# (its own fields and its id) and is encoded only if it enqueues something.
_current: ContextVar[str | tuple[str | None, UUID] | None] = ContextVar("jobwell.correlation", default=None)
LONGEST = 4096


def current() -> str | None:
    """The JSON that a job enqueued now would carry, or None."""
    held = _current.get()
    if not isinstance(held, tuple):
        return held
    meta, parent = held
    encoded = orjson.dumps({**orjson.loads(meta or "{}"), "parent": str(parent)}).decode()
    _current.set(encoded)
    return encoded


@contextlib.contextmanager
def correlate(**fields: object) -> Iterator[None]:
    """Give fields to every job enqueued inside, on top of those already given outside.

    Raises:
        EnqueueError: a value is not a short plain text or number.
    """
    for name, value in fields.items():
        if not (_fits(value) and storable(name)):
            shown = name if name.isidentifier() else repr(name)
            raise EnqueueError(f"correlate({shown}={value!r}): give plain text or numbers that can be stored")
    held = orjson.loads(current() or "{}")
    encoded = orjson.dumps({**held, **{name: value for name, value in fields.items() if value is not None}})
    if len(encoded) > LONGEST:
        raise EnqueueError(f"correlate: the fields take {len(encoded)} bytes, the limit is {LONGEST}; pass references")
    token = _current.set(encoded.decode())
    try:
        yield
    finally:
        _current.reset(token)


def _fits(value: object) -> bool:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and -(2**63) <= value < 2**63)


def inherit(meta: str | None, parent: UUID) -> None:
    """In the context of an attempt: its children carry the same fields, and its id as their parent."""
    _current.set((meta, parent))

"""What every job enqueued here carries: request_id, initiator and the like; a job's children inherit it."""

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import orjson

from jobwell.core.errors import EnqueueError
from jobwell.core.follow import KEY
from jobwell.core.text import storable


class Carrier(Protocol):
    """A job that runs, as its claim gave it."""

    @property
    def id(self) -> UUID:
        """Of the job."""

    @property
    def meta(self) -> str | None:
        """What it carries, as JSON."""


class Within(NamedTuple):
    """What jobs enqueued here carry, encoded, and the job that runs here, if one does."""

    encoded: str | None
    job: Any


# The encoded form is what is needed, once per job; it is made once per context. An attempt leaves a reference to its job, and
# what its children or its log lines need is made of it only when there are any.
_current: ContextVar[Any] = ContextVar("jobwell.correlation", default=None)
LONGEST = 4096


def current() -> str | None:
    """The JSON that a job enqueued now would carry, or None."""
    held = _current.get()
    if held is None:
        return None
    if type(held) is not Within:
        fields = {**orjson.loads(held.meta or "{}"), "parent": str(held.id)}
        fields.pop(KEY, None)  # told to the job itself alone
        held = Within(orjson.dumps(fields).decode(), held)
        _current.set(held)
    return held.encoded


def running() -> tuple[Any, dict[str, Any]]:
    """The job that runs here, or None, and the fields that are carried here; in an attempt its own parent is among them."""
    held = _current.get()
    if held is None:
        return None, {}
    if type(held) is not Within:
        return held, orjson.loads(held.meta) if held.meta else {}
    fields = orjson.loads(held.encoded or "{}")
    if held.job is not None:  # what its children carry as their parent is the job itself
        fields.pop("parent", None)
        fields |= {name: value for name, value in orjson.loads(held.job.meta or "{}").items() if name == "parent"}
    return held.job, fields


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
    token = _current.set(Within(encoded.decode(), running()[0]))
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


def inherit(job: Carrier) -> None:
    """In the context of an attempt: its children carry the same fields, and its id as their parent; its log lines tell it."""
    _current.set(job)

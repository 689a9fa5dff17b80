"""Ids: UUIDv7, so that they sort by time and land at the right end of an index."""

import hashlib
from collections.abc import Iterable
from uuid import UUID

from uuid_utils.compat import uuid7


def new_id() -> UUID:
    """A fresh id: for a job, a claim, a worker."""
    return uuid7()


def gate_of(task: str, resources: Iterable[str] = ()) -> int:
    """The gate of a task with its resources: a signed 64-bit hash, the same for every producer and worker.

    A hash and not a row that someone must register first: an enqueue inside the caller's open transaction
    would otherwise make other producers wait for its commit.
    """
    text = "\x1f".join([task, *sorted(resources)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


ALONE = 0x616C6F6E65  # any number but 0, the same in the store's functions


def alone(gate: int) -> int:
    """The gate of suspects: jobs of the same task whose process has died. They run alone, each in a child of its own."""
    return gate ^ ALONE

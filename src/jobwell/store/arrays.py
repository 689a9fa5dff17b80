"""Arrays of UUIDs for the hot path: packed here, since the driver's general way takes longer than all else in a finish."""

import struct
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

UUID_OID, UUID_ARRAY_OID = 2950, 2951
_LENGTH = struct.pack("!i", 16)


class Uuids:
    """A uuid[] parameter."""

    __slots__ = ("packed",)

    def __init__(self, ids: Iterable[UUID]) -> None:
        parts = [_LENGTH + entry.bytes for entry in ids]
        # One dimension, no nulls, the element's type, then length and lower bound.
        head = struct.pack("!iiIii", 1, 0, UUID_OID, len(parts), 1) if parts else struct.pack("!iiI", 0, 0, UUID_OID)
        self.packed = head + b"".join(parts)


class UuidsDumper(Dumper):
    """Sends what is packed."""

    format = Format.BINARY
    oid = UUID_ARRAY_OID

    def dump(self, obj: Uuids) -> Buffer | None:
        """Nothing is left to do."""
        return obj.packed


def teach(conn: "AsyncConnection[Any]") -> None:
    """Let a connection take `Uuids`."""
    conn.adapters.register_dumper(Uuids, UuidsDumper)

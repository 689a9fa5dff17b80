"""Jobs as rows of a binary COPY, made by hand: the driver would ask a dumper for each of fifteen values of each row.

What many jobs of one call have in common, from the queue to the gate and from the state to the deadline, is made once.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import TYPE_CHECKING, Any

from jobwell.core.job import NewJob
from jobwell.store.jobs import INLINE

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

SIGNATURE = b"PGCOPY\n\xff\r\n\x00" + bytes(8)  # no flags, no extension
TRAILER = b"\xff\xff"
BLOCK = 32 * 1024  # of one message: what the driver itself sends at once
COLUMNS = 15  # of `copy_jobs`, in its order
KEPT = 1000  # ends of rows: where each job has a deadline of its own, nothing is shared

ID = slice(6, 22)  # in a row

_NULL = b"\xff\xff\xff\xff"
_LENGTH = Struct("!i").pack
_RANK = Struct("!ih").pack
_GATE = Struct("!iq").pack
_SIZE = Struct("!ii").pack
_BEGIN = Struct("!hi").pack(COLUMNS, 16)  # a row, and the length of its id
_KEYED_BEGIN = Struct("!hi").pack(COLUMNS + 2, 16)
_UNTIL = {"done": _LENGTH(4) + b"done", "started": _LENGTH(7) + b"started", None: _NULL}
_PAIR = Struct("!hi").pack(2, 16)
_MOMENT = Struct("!iq").pack
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_STATES = {True: _LENGTH(5) + b"ready", False: _LENGTH(9) + b"scheduled"}


def encoding_of(conn: "Connection[Any] | AsyncConnection[Any]") -> str:
    """In which texts go to the server: a caller's connection may have another one than UTF-8."""
    found = conn.info.encoding
    return "utf-8" if found == "ascii" else found  # as the driver does: a server without an encoding takes the bytes as they are


def _text(value: str, encoding: str) -> bytes:
    encoded = value.encode(encoding)
    return _LENGTH(len(encoded)) + encoded


def _moment(value: datetime) -> bytes:
    return _MOMENT(8, (value - _EPOCH) // _MICROSECOND)


class Rows:
    """Makes the rows of one COPY.

    Args:
        now: the database's time, at which the jobs are enqueued.
        meta: what all of them carry.
        queues: takes up those that have work at once.
        encoding: of the connection.
        keyed: for `keyed_row`, and not for `row`.
    """

    def __init__(self, now: datetime, meta: str | None, queues: set[str], encoding: str, *, keyed: bool = False) -> None:
        self._begin = _KEYED_BEGIN if keyed else _BEGIN
        self._encoding = encoding
        self._now = now
        self._queues = queues
        self._meta = _NULL if meta is None else _text(meta, encoding)
        self._fronts: dict[tuple[str, str, int, int], bytes] = {}
        self._ends: dict[float, bytes] = {}  # by deadline, of jobs that are due

    def row(self, job: NewJob) -> bytes:
        """Of one job. It was checked when it was made, so its texts can be stored."""
        encoding = self._encoding
        key = (job.queue, job.task, job.rank, job.gate)
        front = self._fronts.get(key)
        if front is None:
            front = self._fronts[key] = (
                _text(job.queue, encoding) + _text(job.task, encoding) + _RANK(2, job.rank) + _GATE(8, job.gate)
            )
        if job.run_at or job.delay:
            end = self._end_of(job)
        else:
            end = self._ends.get(job.deadline, b"")
            if not end:
                if len(self._ends) >= KEPT:
                    self._ends.clear()
                end = self._ends[job.deadline] = self._end(self._now, job.deadline)
            self._queues.add(job.queue)
        tenant, key_of_lock, args = job.tenant.encode(encoding), job.lock_key.encode(encoding), job.args.encode(encoding)
        return b"".join((
            self._begin, job.id.bytes, front, _LENGTH(len(tenant)), tenant, _LENGTH(len(key_of_lock)), key_of_lock,
            _SIZE(4, job.size), _LENGTH(len(args)) + args if job.size <= INLINE else _NULL, end,
        ))  # fmt: skip

    def keyed_row(self, job: NewJob) -> bytes:
        """Of one job that may have a key, with the columns of `dedup.copy_jobs`."""
        terms = job.dedup
        if terms is None:
            return self.row(job) + _NULL + _NULL
        key = job.dedup_key.encode(self._encoding)
        return self.row(job) + _LENGTH(len(key)) + key + _UNTIL[terms.until]

    def _end_of(self, job: NewJob) -> bytes:
        due = job.run_at or self._now + timedelta(seconds=job.delay or 0)
        if due <= self._now:
            self._queues.add(job.queue)
        return self._end(due, job.deadline)

    def _end(self, due: datetime, deadline: float) -> bytes:
        ready = due <= self._now
        now = _moment(self._now)
        last = _moment(max(self._now, due) + timedelta(seconds=deadline))
        return b"".join((self._meta, _STATES[ready], now, _moment(due), now if ready else _NULL, last))


def blocks(rows: Iterator[bytes]) -> Iterator[bytes]:
    """A whole COPY, in pieces that are worth sending; nothing where there are no rows."""
    block = bytearray(SIGNATURE)
    for row in rows:
        block += row
        if len(block) >= BLOCK:
            yield bytes(block)
            block.clear()
    if block != SIGNATURE:
        yield bytes(block) + TRAILER


def payload(job: NewJob, encoding: str) -> bytes:
    """The row of large arguments."""
    args = job.args.encode(encoding)
    return b"".join((_PAIR, job.id.bytes, _LENGTH(len(args)), args))

"""The items of a run on their way into the store: by COPY, block by block, each block a transaction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg.errors import UniqueViolation

from jobwell.core.errors import Conflict
from jobwell.core.runs import BadRow
from jobwell.store.statements import OwnAsyncCursor, OwnCursor, Program, Statements, arun, run

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

BLOCK = 5000  # items of one transaction
BLOCK_BYTES = 4 * 1024 * 1024
SEND = 64 * 1024
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@dataclass(slots=True)
class Block:
    """Checked items: keys, each once, and what is stored of each."""

    keys: list[str] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    bad_count: int = 0  # rows, of which each may have several entries
    duplicates: int = 0


@dataclass(slots=True)
class Stored:
    """What has been stored so far.

    Attributes:
        new: items.
        known: items that were there before this began.
        duplicates: of keys that had come before.
        bad: rows that do not fit.
    """

    new: int = 0
    known: int = 0
    duplicates: int = 0
    bad: int = 0


class Intake:
    """Stores the items of one run, one block after the other.

    Args:
        run: which.
        resumes: the input is read from its start again: what is there from before is no duplicate.
    """

    def __init__(self, statements: Statements, run: UUID, *, resumes: bool) -> None:
        self._statements = statements
        self._run = run
        self._resumes = resumes
        self._first: int | None = None
        self.stored = Stored()

    def put(self, conn: "Connection[Any]", block: Block) -> None:
        """Store a block.

        Raises:
            Conflict: the run is sealed, or cancelled.
        """
        first = run(conn, self._begin(block))
        with conn.transaction():
            numbers: Sequence[int] | None = range(first, first + len(block.keys))
            try:
                with conn.transaction(), OwnCursor(conn) as cursor, cursor.copy(self._statements["runs.copy_items"]) as copy:
                    for piece in self._lines(block, first):
                        copy.write(piece)
            except UniqueViolation:
                numbers = None
            run(conn, self._end(block, first, numbers))

    async def aput(self, conn: "AsyncConnection[Any]", block: Block) -> None:
        """As `put`, for async code."""
        first = await arun(conn, self._begin(block))
        async with conn.transaction():
            numbers: Sequence[int] | None = range(first, first + len(block.keys))
            try:
                async with (
                    conn.transaction(),
                    OwnAsyncCursor(conn) as cursor,
                    cursor.copy(self._statements["runs.copy_items"]) as copy,
                ):
                    for piece in self._lines(block, first):
                        await copy.write(piece)
            except UniqueViolation:
                numbers = None
            await arun(conn, self._end(block, first, numbers))

    def _begin(self, block: Block) -> Program[int]:
        rows = yield self._statements("runs.reserve", run=self._run, n=len(block.keys))
        if not rows:
            raise Conflict(f"run {self._run} takes no more items: it is sealed, or cancelled")
        first = int(rows[0][0])
        if self._first is None:
            self._first = first
        return first

    def _lines(self, block: Block, first: int) -> Iterator[bytes]:
        run, piece = str(self._run), bytearray()
        for no, (key, data) in enumerate(zip(block.keys, block.data, strict=True), start=first):
            piece += f"{run}\t{no}\t{key.translate(_ESCAPES)}\t".encode()
            piece += data.replace(b"\\", b"\\\\") if b"\\" in data else data
            piece += b"\n"
            if len(piece) > SEND:
                yield bytes(piece)
                piece.clear()
        if piece:
            yield bytes(piece)

    def _end(self, block: Block, first: int, numbers: Sequence[int] | None) -> Program[None]:
        """Count what is in. Where some were there before, `numbers` is None: then the block goes in row by row."""
        known, twice = 0, block.duplicates
        assert self._first is not None
        if numbers is None:
            rows = yield self._statements(
                "runs.insert_items", run=self._run, nos=list(range(first, first + len(block.keys))), keys=block.keys,
                data=[data.decode() for data in block.data],
            )  # fmt: skip
            numbers = sorted(row[0] for row in rows)
            there = len(block.keys) - len(numbers)
            if self._resumes:
                [(known,)] = yield self._statements("runs.there_before", run=self._run, keys=block.keys, before=self._first)
            twice += there - known
        so_far = self.stored
        rows = yield self._statements(
            "runs.stored", run=self._run, nos=list(numbers), again=self._resumes,
            duplicates=twice + so_far.duplicates * self._resumes, bad=block.bad_count + so_far.bad * self._resumes,
        )  # fmt: skip
        if not rows:
            raise Conflict(f"run {self._run} takes no more items: it was sealed, or cancelled, while they came")
        if block.bad:
            yield self._statements(
                "runs.add_bad", run=self._run, rows=[one.row for one in block.bad], fields=[one.field for one in block.bad],
                reasons=[one.reason for one in block.bad], values=[one.value for one in block.bad],
            )  # fmt: skip
        stored = self.stored
        stored.new += len(numbers)
        stored.known += known
        stored.duplicates += twice
        stored.bad += block.bad_count

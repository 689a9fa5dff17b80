"""The jobs of one call on their way into the store."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import NoReturn
from uuid import UUID

from jobwell.core.errors import EnqueueError, TransactionMisuse
from jobwell.core.job import NewJob
from jobwell.core.spread import Spread
from jobwell.store import dedup
from jobwell.store.copying import ID, Rows
from jobwell.store.jobs import INLINE, insert
from jobwell.store.statements import Program, Statements

SMALL = 200  # below it one INSERT by arrays is faster than a COPY
PIECE = 2000
LARGE_BYTES = 8 * 1024 * 1024  # of large payloads held back until the COPY of their jobs ends
ARRAY_PIECE = 500
ARRAY_BYTES = 1024 * 1024  # of one INSERT by arrays: its text is held several times
CHUNK = 4000  # jobs of which some have keys, in one COPY: kept until it has ended, since it may have to be done in another way


class Feed:
    """The jobs of one call on their way into the store.

    Keeps the ids in input order (16 bytes each), the queues to wake, the large payloads of the running COPY, and the error that
    the caller's stream has ended with.

    Args:
        jobs: the stream.
        then: the job that follows all of them, stored with them.
        eager: read a piece into memory before its COPY begins, because the stream itself may need the connection
            (a cursor of the caller's transaction); otherwise jobs are made while the server stores the earlier ones.
        spread: over which time they become due; None: each at its own.
    """

    def __init__(
        self, jobs: Iterable[NewJob], meta: str | None, *, eager: bool, spread: Spread | None = None, then: NewJob | None = None
    ) -> None:
        self._spread = spread
        self.then = then
        self.followers: list[NewJob] = []  # held back until the COPY of the jobs before them ends
        self._begun: datetime | None = None  # the database's time, from which a spread counts
        self.error: Exception | None = None
        stream = iter(jobs)
        self.eager = eager
        self.meta = meta
        self.ids = bytearray()
        self.queues: set[str] = set()
        self.large: list[NewJob] = []
        self.head = list(islice(stream, SMALL))
        self.small = len(self.head) < SMALL
        self._jobs = chain(() if self.small else self.head, stream)
        self.ended = self.small
        self.transaction: str | None = None  # the caller's
        self.stored = 0
        self.lost = False  # the stream has ended that transaction
        self.keyed: NewJob | None = None  # the next job, which has a key: it begins a piece of its own
        self.suppressed: list[int] = []
        self.spared: Counter[str] = Counter()  # jobs that would have been ready at once, by queue
        self.has_keys = self.small and any(job.dedup is not None for job in self.head)
        self.wary = False  # a key was held: the next ones are looked up first
        self._scopes: set[str] = set()
        if self.small:
            self._take(self.head)

    def _take(self, piece: list[NewJob]) -> list[NewJob]:
        if len({job.id.int for job in piece}) < len(piece):
            self._refuse_twice(piece)
        if any(job.dedup is not None for job in piece):
            return piece  # whose ids they have is told by the store
        self.ids += b"".join([job.id.bytes for job in piece])
        return piece

    def _refuse_twice(self, piece: list[NewJob]) -> None:
        seen: set[UUID] = set()
        for at, job in enumerate(piece, start=len(self.ids) // 16):
            if job.id in seen:
                raise EnqueueError(
                    f"job {at} of this call was given before, as the same job {job.id}; make each with task.job(…) of its own;"
                    " nothing was enqueued"
                )
            seen.add(job.id)

    def placed(self, statements: Statements, piece: list[NewJob]) -> Program[list[NewJob]]:
        """The jobs with their places in the spread, where there is one."""
        spread = self._spread
        if spread is None:
            return piece
        if self._begun is None:
            [(microseconds,)] = yield statements("jobs.now_as_text")
            self._begun = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(microseconds))
        begun = self._begun
        return [spread.place(job, begun) for job in piece]

    def mixed(self, statements: Statements, placed: Sequence[NewJob]) -> Program[None]:
        """Insert a piece in which jobs have keys: an equal one may stand for them.

        Raises:
            Duplicate: one is refused; what was stored is to be undone.
        """
        plain = [job for job in placed if job.dedup is None]
        if plain:
            yield from insert(statements, plain, self.meta)
        keyed = [job for job in placed if job.dedup is not None]
        yield from self.turn(statements, keyed)
        stands = iter((yield from dedup.put(statements, keyed, self.meta, own=self.owns)))
        self.settle(placed, [next(stands) if job.dedup is not None else None for job in placed])

    def turn(self, statements: Statements, jobs: Iterable[NewJob]) -> Program[None]:
        """Wait until no other large call puts in jobs that may be equal to these."""
        scopes = {job.dedup.prefix(job.task) for job in jobs if job.dedup is not None}
        for scope in sorted(scopes - self._scopes):
            yield statements("dedup.turn", scope=scope, alone=not self.small)
        self._scopes |= scopes

    def settle(self, jobs: Sequence[NewJob], stands: Sequence[dedup.Stands | None]) -> None:
        """Note the ids of jobs, and which others stand for them."""
        for job, found in zip(jobs, stands, strict=True):
            if found is not None and not found.created:
                self.suppressed.append(len(self.ids) // 16)
                self.spared[job.queue] += not job.delay and job.run_at is None
            self.ids += (job.id if found is None else found.id).bytes
        self.stored = len(self.ids) // 16

    def owns(self, job: UUID) -> bool:
        """Whether a job is one of this call's, put in before."""
        at = self.ids.find(job.bytes)
        while at % 16 and at >= 0:
            at = self.ids.find(job.bytes, at + 1)
        return at >= 0 and at // 16 not in self.suppressed

    def chunk(self, now: datetime) -> Iterator[NewJob]:
        """Jobs from the one on that has a key, in their places: to the end of the stream, or of the chunk."""
        assert self.keyed is not None
        size, spread, terms, task = 0, self._spread, self.keyed.dedup, self.keyed.task
        jobs = chain((self.keyed,), self._jobs)
        self.keyed = None
        try:
            for count, job in enumerate(jobs, start=1):
                if job.after:
                    _refuse_behind_keys()
                if job.dedup is not terms or job.task is not task:
                    if job.dedup is not None and job.dedup.prefix(job.task) not in self._scopes:
                        self.keyed = job  # whose turn is to be waited for
                        return
                    terms, task = job.dedup, job.task
                yield job if spread is None else spread.place(job, now)
                size += job.size
                if count == CHUNK or size > LARGE_BYTES:
                    self.keyed = next(self._jobs, None)
                    self.ended = self.keyed is None
                    return
        except Exception as error:
            self.error = error
            raise
        self.ended = True

    @property
    def simple(self) -> bool:
        """Whether one statement stores all of it."""
        return self.small and not self.has_keys and self.then is None and not any(job.after for job in self.head)

    def begin(self, statements: Statements) -> Program[None]:
        """Note which transaction of the caller's this is."""
        if self.eager:  # otherwise it is our own, and no stream can reach it
            [(self.transaction,)] = yield statements("jobs.transaction")

    def same(self, statements: Statements) -> Program[None]:
        """Look whether the caller's transaction is still the one of the beginning: a stream may have ended it.

        Raises:
            TransactionMisuse: it is another one; what was stored shares the fate of the first.
        """
        if not self.eager:
            return
        try:
            [(found,)] = yield statements("jobs.transaction_now")
        except Exception as error:
            if isinstance(error, TransactionMisuse | OSError) or hasattr(error, "sqlstate") or hasattr(error, "orig"):
                raise
            raise self._ended("over") from error  # the library has given up the connection together with its transaction
        if found != self.transaction:
            self.lost = True
            [(fate,)] = yield statements("jobs.transaction_status", id=self.transaction)
            raise self._ended(str(fate))

    def _ended(self, fate: str) -> TransactionMisuse:
        self.lost = True
        return TransactionMisuse(
            f"the stream of jobs has ended the transaction that they belong to: {self.stored} jobs of this call were stored in it"
            f" before, and it is {fate}; nothing more was enqueued. A stream may read and write through the connection, but"
            " neither commit nor roll back"
        )

    def pieces(self) -> Iterator[list[NewJob]]:
        """All jobs, in pieces for an INSERT by arrays."""
        self.head = []
        piece: list[NewJob] = []
        size = 0
        for job in self._jobs:
            piece.append(job)
            size += job.size
            if len(piece) == ARRAY_PIECE or size > ARRAY_BYTES:
                yield self._take(piece)
                piece, size = [], 0
        if piece:
            yield self._take(piece)

    def rows(self, now: datetime, encoding: str) -> Iterator[bytes]:
        """The rows of one COPY: to the end of the stream, of the piece, or of the room for large payloads."""
        row = Rows(now, self.meta, self.queues, encoding).row
        self.head, self.large, self.followers = [], [], []
        spread, piece = self._spread, self._piece()
        if spread is not None:
            piece = (spread.place(job, now) for job in piece)
        if self.eager:
            yield from map(row, self._at_once(self._take(list(piece))))
            return
        yield from map(row, self._at_once(self._noted(piece)))

    def _noted(self, piece: Iterable[NewJob]) -> Iterator[NewJob]:
        for job in piece:
            self.ids += job.id.bytes
            yield job

    def _at_once(self, piece: Iterable[NewJob]) -> Iterator[NewJob]:
        for job in piece:
            if job.after:
                self.followers.append(job)
            else:
                yield job

    def _piece(self) -> Iterator[NewJob]:
        size = 0
        try:
            for count, job in enumerate(self._jobs, start=1):
                if job.dedup is not None:
                    self.keyed = job
                    return
                if job.size > INLINE:
                    self.large.append(job)
                    size += job.size
                elif job.after:
                    size += job.size + 100 * len(job.after)
                yield job
                if size > LARGE_BYTES or (self.eager and count == PIECE):
                    return
        except Exception as error:
            self.error = error
            raise
        self.ended = True


def _refuse_behind_keys() -> NoReturn:
    raise EnqueueError(
        f"a call of {SMALL} jobs or more takes jobs that follow others only before the first one that has a key (dedup): give"
        " them to a call of their own; nothing was enqueued"
    )


class Chunk:
    """Some jobs, of which some have keys, on their way through one COPY that goes well as long as nobody holds their keys.

    Attributes:
        jobs: all of them, in order.
        aside: the places of those that are not in the COPY.
        large: those in the COPY with large arguments.
    """

    def __init__(self, held: Collection[str] = ()) -> None:
        self.jobs: list[NewJob] = []
        self.aside: list[int] = []
        self.large: list[NewJob] = []
        self._held = held
        self._ids = bytearray()
        self._keys: set[str] = set()

    def rows(self, jobs: Iterable[NewJob], row: Callable[[NewJob], bytes]) -> Iterator[bytes]:
        """The rows of the COPY."""
        add, keys, held, ids = self.jobs.append, self._keys, self._held, self._ids
        for job in jobs:
            add(job)
            if job.dedup is not None:
                key = job.dedup_key
                if job.dedup.until is None or key in keys or key in held:
                    self.aside.append(len(self.jobs) - 1)
                    continue
                keys.add(key)
            if job.size > INLINE:
                self.large.append(job)
            made = row(job)
            ids += made[ID]
            yield made

    def put_aside(self, statements: Statements, feed: Feed) -> Program[None]:
        """What the COPY has left, and the ids of all."""
        aside = [self.jobs[place] for place in self.aside]

        def owns(job: UUID) -> bool:
            return feed.owns(job) or any(one.id == job for one in self.jobs)

        stands: list[dedup.Stands] = []
        for first in range(0, len(aside), ARRAY_PIECE):
            stands += yield from dedup.put(statements, aside[first : first + ARRAY_PIECE], feed.meta, own=owns)
        if not aside:
            feed.ids += self._ids
            feed.stored = len(feed.ids) // 16
            return
        found: list[dedup.Stands | None] = [None] * len(self.jobs)
        for place, one in zip(self.aside, stands, strict=True):
            found[place] = one
        feed.settle(self.jobs, found)

    def all_aside(self, statements: Statements, feed: Feed) -> Program[None]:
        """All of them in another way: the COPY was undone."""
        for first in range(0, len(self.jobs), ARRAY_PIECE):
            yield from feed.mixed(statements, self.jobs[first : first + ARRAY_PIECE])

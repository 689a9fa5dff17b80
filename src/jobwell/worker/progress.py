"""How far attempts are: the last word of each, written in one statement for all of them, at most once a second for each."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from jobwell.core.progress import Report, later
from jobwell.store import checkpoints
from jobwell.store.checkpoints import Fence, Told
from jobwell.store.link import Link
from jobwell.store.statements import Statements, arun
from jobwell.worker.record import Attempt

EVERY = 1.0  # seconds between two words of one job
GATHER = 0.05  # seconds for which the first word waits for others
LARGEST = 1000  # in one statement
IDLE = 3600.0
TO_PARENT = 0.25  # seconds between two words of a child process to its worker


class Board:
    """Takes in what attempts tell, from any thread, and writes it.

    Args:
        statements: of the store.
        link: the connection that the loop writes over.
        wake: wakes the loop, from any thread.
    """

    def __init__(self, statements: Statements, link: Link | None = None, wake: Callable[[], None] = lambda: None) -> None:
        self._statements = statements
        self._link = link
        self.wake = wake
        self._waiting: dict[tuple[UUID, Any], tuple[Attempt, Report]] = {}
        self._leaving: set[tuple[UUID, Any]] = set()  # those that are being written
        self._one = asyncio.Lock()
        self._guard = threading.Lock()

    def tell(self, attempt: Attempt, told: Report) -> None:
        """The last word of an attempt. Never waits for the store."""
        with self._guard:
            attempt.told = later(attempt.told, told)
            first = not self._waiting
            self._waiting[attempt.job.id, attempt.claim_id] = attempt, attempt.told
        if first:
            self.wake()

    async def tick(self) -> float:
        """Write what is due."""
        assert self._link is not None
        now = time.monotonic()
        due = [attempt for attempt, _ in list(self._waiting.values()) if now - attempt.told_at >= EVERY][:LARGEST]
        if due:
            async with self._link.use() as conn:
                await self._write(conn, due)
        rests = [attempt.told_at + EVERY - time.monotonic() for attempt, _ in list(self._waiting.values())]
        return max(GATHER, min(rests)) if rests else IDLE

    async def last(self, conn: "AsyncConnection[Any]", attempts: Iterable[Attempt]) -> None:
        """Before these attempts end: their last words, where they are not written yet. Behind the end they would be refused."""
        if self._waiting or self._leaving:
            open_still = self._waiting.keys() | self._leaving
            left = [attempt for attempt in attempts if (attempt.job.id, attempt.claim_id) in open_still]
            if left:
                await self._write(conn, left)

    async def _write(self, conn: "AsyncConnection[Any]", attempts: Iterable[Attempt]) -> None:
        async with self._one:
            await self._write_now(conn, attempts)

    async def _write_now(self, conn: "AsyncConnection[Any]", attempts: Iterable[Attempt]) -> None:
        with self._guard:
            taken = {key: self._waiting.pop(key) for each in attempts if (key := (each.job.id, each.claim_id)) in self._waiting}
        now = time.monotonic()
        reports = []
        for attempt, told in taken.values():
            attempt.told_at = now
            reports.append(Told(Fence(attempt.job.id, attempt.claim_id), told.done, told.total, told.note or None))
        if not reports:
            return
        self._leaving = set(taken)
        try:
            await arun(conn, checkpoints.tell(self._statements, reports))
        except BaseException:
            with self._guard:  # a newer word goes before
                self._waiting = taken | self._waiting
            raise
        finally:
            self._leaving = set()


class ChildBoard:
    """In a child process: tells its worker, at most four times a second, and the last word.

    Args:
        say: sends one message.
    """

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        self._say = say
        self._guard = threading.Lock()
        self._left: Report | None = None
        self._timer: threading.Timer | None = None
        self._said_at = 0.0

    def tell(self, attempt: Attempt, told: Report) -> None:
        """The last word of the one attempt that runs here."""
        with self._guard:
            attempt.told = self._left = later(attempt.told, told)
            if self._timer is None:
                rest = max(0.0, self._said_at + TO_PARENT - time.monotonic())
                self._timer = threading.Timer(rest, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Send what is left."""
        with self._guard:
            left, self._left = self._left, None
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
            if left is not None:
                self._said_at = time.monotonic()
                self._say({"progress": {"done": left.done, "total": left.total, "note": left.note}})


def heard(said: Mapping[str, Any]) -> Report:
    """What a child has told."""
    return Report(int(said["done"]), None if said["total"] is None else int(said["total"]), str(said["note"]))

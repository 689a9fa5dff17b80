"""What jobs record themselves: committed at once, on a connection that has nothing to do with Jobwell's."""

import os
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any
from uuid import UUID

import psycopg

from jobwell.lab.chaos.statements import statements

URL_VARIABLE = "JOBWELL_CHAOS_MARKS"
LARGEST = 500
Row = tuple[Any, ...]
COLUMNS = ("call", "job", "attempt", "worker", "executor", "what", "at", "pid")


def worker_id() -> UUID:
    """Of the worker whose process this is, or whose child: from its command line, which children inherit."""
    return UUID(sys.argv[sys.argv.index("--child") + 1])


class Writer:
    """Writes marks in the order in which they come, those that wait together in one commit; until the server takes them.

    Args:
        environ: names the server, past every proxy.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._waiting: SimpleQueue[tuple[Row, Future[None]]] = SimpleQueue()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def write(self, call: UUID, job: UUID, attempt: int, executor: str, what: str) -> "Future[None]":
        """A mark of this moment. The result comes when it is committed."""
        with self._guard:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="chaos-marks", daemon=True)
                self._thread.start()
        done: Future[None] = Future()
        self._waiting.put(((call, job, attempt, worker_id(), executor, what, datetime.now(UTC), os.getpid()), done))
        return done

    def _serve(self) -> None:
        conn: psycopg.Connection[Any] | None = None
        while True:
            batch = [self._waiting.get()]
            while len(batch) < LARGEST:
                try:
                    batch.append(self._waiting.get_nowait())
                except Empty:
                    break
            given = dict(zip(COLUMNS, (list(column) for column in zip(*(row for row, _ in batch), strict=True)), strict=True))
            conn = self._commit(conn, given)
            for _, done in batch:
                if done.set_running_or_notify_cancel():
                    done.set_result(None)

    def _commit(self, conn: "psycopg.Connection[Any] | None", given: dict[str, Any]) -> "psycopg.Connection[Any]":
        while True:
            try:
                if conn is None:
                    url = self._environ[URL_VARIABLE]
                    conn = psycopg.connect(url, autocommit=True, application_name="chaos marks", connect_timeout=5)
                conn.execute(statements()["mark"], given)
            except psycopg.OperationalError:  # the server restarts, or somebody has ended this connection
                if conn is not None:
                    conn.close()
                conn = None
                time.sleep(0.05)
            else:
                return conn

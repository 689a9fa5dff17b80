"""Producers: they enqueue singly, within transactions, and in bulk, and know for sure what was committed."""

import threading
import time
from collections import deque
from collections.abc import Callable
from random import Random
from uuid import UUID

import psycopg

from jobwell.core.errors import JobwellError
from jobwell.core.job import NewJob
from jobwell.lab.chaos import mix
from jobwell.lab.chaos.tasks import app
from jobwell.testing.evidence import Fate, Put

A_SECOND = 150.0  # jobs
TROUBLE = (JobwellError, psycopg.Error, OSError)


class Producers:
    """Three threads that enqueue until they are told to stop.

    Args:
        url: the database's, through a proxy.
        seed: what is drawn.
    """

    def __init__(self, url: str, seed: int) -> None:
        app.override({"database_url": url, "connect_timeout": "2s", "statement_timeout": "10s"})
        self._url = url
        self._puts: dict[UUID, Put] = {}
        self._count = 0
        self._began = time.monotonic()
        self._stopping = threading.Event()
        self.recent: deque[UUID] = deque(maxlen=3000)
        makes: tuple[Callable[[Random], None], ...] = (self._single, self._within, self._bulk)
        self._threads = [
            threading.Thread(target=self._serve, args=(make, Random(seed + number)), daemon=True)  # noqa: S311
            for number, make in enumerate(makes)
        ]

    def start(self) -> None:
        """Begin."""
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, each after what it is at."""
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is None:  # interrupted before it began
                continue
            thread.join(60)
            if thread.is_alive():
                raise JobwellError("a producer does not come to its end")

    def puts(self) -> list[Put]:
        """What they know; after `stop`."""
        return list(self._puts.values())

    def _serve(self, make: Callable[[Random], None], random: Random) -> None:
        while not self._stopping.is_set():
            make(random)

    def _know(self, job: NewJob, fate: Fate) -> None:
        self._puts[job.id] = Put(job.id, fate, job.lock_key)

    def _behind(self) -> float:
        return (time.monotonic() - self._began) * A_SECOND - self._count

    def _single(self, random: Random) -> None:
        job = mix.draw(random)
        self._know(job, "unknown")  # first: it may run before we know more
        self._count += 1
        try:
            app.client.put(job, None)
            self._know(job, "committed")
            self.recent.append(job.id)
        except TROUBLE:
            pass
        self._stopping.wait(random.uniform(0, 0.08))

    def _within(self, random: Random) -> None:
        jobs = [mix.draw(random) for _ in range(random.randint(1, 5))]
        commits = random.random() < 0.7
        self._count += len(jobs)
        fate: Fate = "rolled back"  # until COMMIT is sent, whatever happens rolls it back
        try:
            with psycopg.connect(self._url, connect_timeout=2, options="-c statement_timeout=10000") as conn:
                with app.within(conn):
                    for job in jobs:
                        app.client.put(job, None)
                if commits:
                    fate = "unknown"
                    for job in jobs:
                        self._know(job, fate)
                    conn.commit()
                    fate = "committed"
                else:
                    conn.rollback()
        except TROUBLE:
            pass
        for job in jobs:
            self._know(job, fate)
            if fate == "committed":
                self.recent.append(job.id)
        self._stopping.wait(random.uniform(0, 0.3))

    def _bulk(self, random: Random) -> None:
        behind = self._behind()
        if behind < 100:
            self._stopping.wait(0.1)
            return
        jobs = [mix.draw(random) for _ in range(min(int(behind), random.randint(100, 600)))]
        for job in jobs:
            self._know(job, "unknown")
        self._count += len(jobs)
        try:
            app.enqueue_many(jobs)
        except TROUBLE:
            return
        for job in jobs:
            self._know(job, "committed")
            self.recent.append(job.id)

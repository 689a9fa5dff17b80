"""The start of a worker: connections first, then the promise. It waits for a store that is away or full, with growing pauses."""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from uuid import UUID

import psycopg

import jobwell
from jobwell.app import App
from jobwell.core.errors import StoreUnavailable
from jobwell.core.published import publish
from jobwell.store import breakers
from jobwell.store import catalog as published
from jobwell.store import limits as declared
from jobwell.store.database import Database
from jobwell.store.link import Link
from jobwell.store.pool import pauses
from jobwell.store.statements import arun
from jobwell.store.workers import WorkerVerbs
from jobwell.worker.heartbeat import Heartbeat

log = logging.getLogger("jobwell.worker")

LONGEST_PAUSE = 2.0  # seconds between two attempts to begin


class Start:
    """Has all connections of a worker, and registers it.

    Args:
        links: the two on the loop; the first one registers.
        fit: checks tables and server before anything is promised.
        children: how many child processes it keeps.
        alive: told at each attempt that this process lives; a database that is away is no reason to kill it.
    """

    def __init__(
        self,
        database: Database,
        worker: UUID,
        *,
        app: App,
        queues: Sequence[str],
        slots: int,
        children: int,
        links: tuple[Link, Link],
        heartbeat: Heartbeat,
        fit: Callable[[], None],
        alive: Callable[[], None],
    ) -> None:
        self._database = database
        self._worker = worker
        self._catalog = app.catalog
        self._limits = app.limits_declared()
        self._guards = app.guards
        self._queues = queues
        self._slots = slots
        self._children = children
        self._links = links
        self._heartbeat = heartbeat
        self._fit = fit
        self._alive = alive

    async def begin(self, stop: asyncio.Event) -> bool:
        """Have everything and register. False: told to stop meanwhile.

        Raises:
            StoreError: the store cannot be used as it is.
        """
        told = False
        for pause in pauses(LONGEST_PAUSE):
            if stop.is_set():
                break
            self._alive()
            try:
                await self._try()
            except (StoreUnavailable, psycopg.OperationalError) as error:
                if not told:
                    log.warning("the start waits for the store: %s", error)
                    told = True
                await self._let_go()  # a part of them would only keep others from having theirs
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), pause)
            except BaseException:
                await self._let_go()
                raise
            else:
                path = "through a pooler in transaction mode, nothing is prepared" if self._database.pooled else "direct"
                log.info("connections: %s", path)
                return True
        return False

    async def _try(self) -> None:
        await asyncio.to_thread(self._fit)
        await asyncio.to_thread(self._heartbeat.prepare)
        async with self._links[1].use():
            pass
        host, database = socket.gethostname(), self._database
        verbs = WorkerVerbs(database.statements)
        specs = {spec.name: publish(spec) for spec in self._catalog}  # before the lease begins: it may take a moment
        async with self._links[0].use() as conn:
            asked = time.monotonic()
            told = await arun(conn, verbs.register(
                self._worker, lease=database.settings.lease, pid=os.getpid(), host=host, name=f"{host}/{os.getpid()}",
                version=jobwell.__version__, slots=self._slots, queues=self._queues))  # fmt: skip
            self._heartbeat.clock.said(*told, asked)
            former = [alias for spec in self._catalog for alias in spec.aliases]
            program = published.publish(database.statements, self._worker, specs, release=jobwell.__version__, former=former)
            await arun(conn, program)
            await arun(conn, declared.publish(database.statements, self._worker, self._catalog, self._limits))
            await arun(conn, breakers.declare(database.statements, self._guards))
            if self._children:
                await arun(conn, verbs.keeps_children(self._worker, children=self._children))

    async def _let_go(self) -> None:
        for link in self._links:
            await link.close()
        self._heartbeat.drop()

"""Children: processes that are the worker's own, one job at a time each, warm, and killed with everything they started.

The standard pool does not do: one death breaks it for all, and it has no way to kill one job.
"""

import asyncio
import logging
import multiprocessing
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson

from jobwell.core.outcome import Cancelled, Outcome, Released
from jobwell.store.jobs import Claimed
from jobwell.worker.calls import Calls
from jobwell.worker.executors.kept import Died, Kept, NotTaken
from jobwell.worker.executors.threads import Threads

log = logging.getLogger("jobwell.worker")

KILL_AFTER = 1.5  # seconds from the request to stop to the kill
START_PATIENCE = 60.0  # seconds for the user's modules to be imported
MOST_TRIES = 3  # children that die before they take a job
MOST_JOBS = 1000  # then a fresh one: what a library leaks is given back
MOST_AGE = 3600.0
UNASKED = "its process was told to stop, and not by this worker"


class CannotStart(Exception):
    """No child can be started; the message says why."""


class Children:
    """Runs jobs in children.

    Args:
        size: how many at the most; they are made when they are needed.
        target: the app, as `load_app` takes it.
        threads: where one waits for each of them.
        now: the database's time.
        overrides: settings of the app that go before what its module and the environment say. They reach a child through a
            pipe, so that a password in them is seen by nobody else.
    """

    def __init__(
        self, size: int, target: str, threads: Threads, now: Callable[[], datetime], overrides: Mapping[str, Any] | None = None
    ) -> None:
        self.size = size
        self._target = target
        self._threads = threads
        self._now = now
        self._overrides = dict(overrides or {})
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["jobwell.worker.executors.server", "jobwell.worker.executors.child"])
        self._all: set[Kept] = set()
        self._idle: list[Kept] = []
        self._working: dict[str, Kept] = {}
        self._coming: list[asyncio.Future[Kept]] = []  # starts that nobody waits for any more
        self._closed = False
        self._leaving = False
        self.calls: Calls | None = None  # told what calls of resources came to

    async def run(
        self,
        row: Claimed,
        claim_id: UUID,
        memory: int | None,
        begun: Callable[[], None] = lambda: None,
        progress: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> Outcome | None:
        """One attempt in a child.

        Cancelled, it asks the child to stop, kills its whole group `KILL_AFTER` later, however often it is cancelled meanwhile,
        and then raises the cancellation. An attempt that came to an end of its own meanwhile is returned all the same. A child
        whose start outlives the cancellation is kept for the next job.

        Args:
            row: the job.
            claim_id: of its claim.
            memory: bytes that its process and what it has started may hold.
            begun: called on the loop once a child has taken the job: until then none of the job's time has passed.
            progress: given what the job says of its progress, on a thread.

        Raises:
            Died: the child died of itself.
            TooMuchMemory: it held more than `memory` bytes.
            CannotStart: there is no child to run it.
        """
        since = time.monotonic()
        told = ""
        for _ in range(MOST_TRIES):
            kept = await self._take()
            if row.remaining is not None:
                waited = time.monotonic() - since
                row, since = row._replace(remaining=row.remaining - waited), since + waited
            try:
                return await self._run_in(kept, row, claim_id, memory, (begun, progress))
            except NotTaken as error:
                told = str(error)
                log.warning("job %s (%s) goes to another child process; one did not take it: %s", row.id, row.task, error)
        raise CannotStart(f"{MOST_TRIES} child processes in a row did not take the job: {told}")

    def kill(self, job: UUID, claim_id: UUID) -> None:
        """Kill the child that runs this attempt, with what it has started, at once. From any thread."""
        kept = self._working.get(_name(job, claim_id))
        if kept is not None:
            kept.kill("its job is no longer ours")

    def leave(self) -> None:
        """The worker shuts down: jobs that can go on elsewhere may end."""
        self._leaving = True  # for those whose child is still starting
        for kept in self._working.values():
            self._say_leave(kept)

    def _takes(self, of: str, kept: Kept) -> None:
        self._working[of] = kept
        if self._leaving:
            self._say_leave(kept)

    def _say_leave(self, kept: Kept) -> None:
        self._threads.submit(partial(kept.say, orjson.dumps({"leave": True})))

    async def _run_in(
        self,
        kept: Kept,
        row: Claimed,
        claim_id: UUID,
        memory: int | None,
        hear: tuple[Callable[[], None], Callable[[dict[str, Any]], None]],
    ) -> Outcome | None:
        of = _name(row.id, claim_id)
        order = orjson.dumps({"of": of, "row": row._asdict(), "claim_id": claim_id, "now": self._now().timestamp()})
        tell: Callable[[], object] = partial(asyncio.get_running_loop().call_soon_threadsafe, hear[0])
        kept.told = hear[1]
        self._takes(of, kept)
        terms = self.calls.terms() if self.calls is not None else {}
        exchange: asyncio.Future[Outcome | None] = self._threads.submit(lambda: kept.exchange(order, of, memory, tell))
        cancelled: asyncio.CancelledError | None = None
        kill_at = float("inf")
        while not exchange.done():
            try:
                await asyncio.wait([exchange], timeout=None if cancelled is None else max(kill_at - time.monotonic(), 0.0))
            except asyncio.CancelledError as error:
                if cancelled is None:
                    cancelled, kill_at = error, time.monotonic() + KILL_AFTER
                    self._threads.submit(lambda: kept.say(orjson.dumps({"stop": of})))
            if time.monotonic() >= kill_at and not exchange.done():
                kept.kill("it was told to stop")
                kill_at = time.monotonic() + KILL_AFTER
        del self._working[of]
        try:
            outcome = exchange.result()
        except BaseException as error:
            self._end(kept)
            if cancelled is not None and isinstance(error, Died | NotTaken):
                raise cancelled from None
            raise
        if self.calls is not None:
            self.calls.heard(kept.calls, terms)
        self._give_back(kept, asked=cancelled is not None)
        if isinstance(outcome, Cancelled):
            if cancelled is not None:
                raise cancelled  # why is known to the attempt
            return Released(UNASKED, begun=False)
        return outcome

    def _give_back(self, kept: Kept, *, asked: bool) -> None:
        """For the next job, unless it is old, or something of this job may be left in it."""
        old = kept.jobs >= MOST_JOBS or time.monotonic() - kept.born > MOST_AGE
        if asked or old or kept.spoiled or kept.killed_for or self._closed:
            self._end(kept)
        else:
            self._idle.append(kept)

    async def _take(self) -> Kept:
        while self._idle:
            kept = self._idle.pop()
            if not kept.dead:
                return kept
            log.warning("an idle child process has died: %s", kept.reap(0))
            self._end(kept)
        start = self._coming.pop() if self._coming else self._threads.submit(self._start)
        try:
            return await asyncio.shield(start)
        except asyncio.CancelledError:
            self._coming.append(start)
            start.add_done_callback(self._came)
            raise

    def _came(self, start: "asyncio.Future[Kept]") -> None:
        """A start has ended whose job did not wait for it."""
        if start not in self._coming:
            return
        self._coming.remove(start)
        if not start.cancelled() and start.exception() is None:
            self._give_back(start.result(), asked=False)

    def _start(self) -> Kept:
        from jobwell.worker.executors import child as child_module  # it imports the attempt, which knows us

        ours, theirs = self._context.Pipe()
        level = logging.getLogger().level
        process = self._context.Process(
            target=child_module.main, args=(theirs, self._target, str(Path.cwd()), level, self._overrides), name="jobwell-child"
        )  # fmt: skip
        try:
            process.start()
        except (OSError, EOFError) as error:
            ours.close()
            raise CannotStart(f"a child process cannot be started: {type(error).__name__}: {error}") from error
        finally:
            theirs.close()
        kept = Kept(process, ours, time.monotonic())
        self._all.add(kept)
        try:
            self._greet(kept)
        except BaseException:
            self._end(kept)
            raise
        return kept

    def _greet(self, kept: Kept) -> None:
        if not wait([kept.pipe, kept.process.sentinel], START_PATIENCE):
            raise CannotStart(f"a child process was not ready within {START_PATIENCE:.0f} s")
        try:
            said = orjson.loads(kept.pipe.recv_bytes())
        except (EOFError, OSError):
            raise CannotStart(f"a child process died at its start: {kept.reap(1.0)}") from None
        if "failed" in said:
            raise CannotStart(f"a child process could not load {self._target}: {said['failed']}")
        if self._closed:
            raise CannotStart("the worker ends")

    def _end(self, kept: Kept) -> None:
        self._all.discard(kept)
        kept.kill("it is of no use any more")
        threading.Thread(target=kept.bury, name="jobwell-reaper", daemon=True).start()

    def close(self) -> None:
        """Kill them all; what still ran was handed back before."""
        self._closed = True
        for kept in list(self._all):
            self._end(kept)
        self._idle.clear()


def _name(job: UUID, claim_id: UUID) -> str:
    return f"{job}/{claim_id}"

"""Loads and records items for all jobs of a loop: what comes while one statement is under way goes with the next one.

A stage of one item a job would otherwise pay two round trips and a commit for each of them.
"""

import asyncio
import contextlib
import logging
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jobwell.core.errors import StoreUnavailable
from jobwell.store import runs as store
from jobwell.store.database import is_lost
from jobwell.store.runs import Ended, Facts, Loaded
from jobwell.store.statements import Program, T, arun

if TYPE_CHECKING:
    from jobwell.client.client import Client

log = logging.getLogger("jobwell.worker")

LARGEST = 2000  # items in one statement
PATIENCE = 60.0  # seconds for which a store that is away is waited for; the time limit of the job ends it before
PAUSE = 0.5
TURN_AFTER = 100  # items
TURN_WITHIN = 0.05  # seconds
KEPT = 100  # runs of which the facts are remembered

Asked = tuple[UUID, UUID, int, Sequence[Sequence[int]]]
Told = tuple[set[UUID], dict[UUID, str]]


class Clerk:
    """Of one loop.

    Args:
        client: whose connections it borrows.
    """

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._loads: list[tuple[Asked, asyncio.Future[list[Loaded]]]] = []
        self._records: list[tuple[list[Ended], list[tuple[UUID, str]], asyncio.Future[Told]]] = []
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._facts: dict[UUID, Facts] = {}
        self._at_work: Counter[UUID] = Counter()  # jobs of each run that are loaded and not closed
        self._since: Counter[UUID] = Counter()  # items recorded since the run was moved on from here
        self._soon: asyncio.Task[None] | None = None
        self._turns: set[asyncio.Task[None]] = set()

    async def load(self, job: UUID, run: UUID, stage: int, spans: Sequence[Sequence[int]]) -> list[Loaded]:
        """The open items of a job."""
        future: asyncio.Future[list[Loaded]] = asyncio.get_running_loop().create_future()
        self._loads.append(((job, run, stage, spans), future))
        self._begin("load", self._load_all)
        return await future

    @contextlib.contextmanager
    def at_work(self, run: UUID) -> Iterator[None]:
        """While a job of this run is at work here, others may move the run on: it needs no turn for each of them."""
        self._at_work[run] += 1
        try:
            yield
        finally:
            self._at_work[run] -= 1
            if not self._at_work[run]:
                del self._at_work[run]

    async def record(self, ended: list[Ended], rest: list[tuple[UUID, str]]) -> Told:
        """Write what became of items, and move their runs on."""
        future: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._records.append((ended, rest, future))
        self._begin("record", self._record_all)
        return await future

    async def facts(self, run: UUID) -> Facts:
        """Of a run; they never change."""
        found = self._facts.get(run)
        if found is None:
            found = await self.ask(store.facts(self._client.statements, run))
            if len(self._facts) >= KEPT:
                self._facts.clear()
            self._facts[run] = found
        return found

    async def ask(self, program: Program[T]) -> T:
        """Run a program on a connection of its own."""
        async with self._client.connections.of_loop() as conn:
            return await arun(conn, program)

    def _begin(self, what: str, work: Any) -> None:
        if what not in self._busy:
            self._busy[what] = asyncio.get_running_loop().create_task(self._do(what, work))

    async def _do(self, what: str, work: Any) -> None:
        await asyncio.sleep(0)  # who is about to ask in this round of the loop asks with the first
        try:
            await work()
        finally:
            self._busy.pop(what, None)  # without an await between the last look and this: nobody is left waiting

    async def _load_all(self) -> None:
        while self._loads:
            batch, self._loads = self._loads, []
            try:
                rows = await self._patiently(
                    lambda batch=batch: store.load(self._client.statements, [asked for asked, _ in batch])
                )
            except BaseException as error:  # noqa: BLE001  whoever waits must hear of it, whatever it is
                _tell(error, [future for _, future in batch])
                continue
            of: dict[UUID, list[Loaded]] = {}
            for row in rows:
                of.setdefault(row.job, []).append(row)
            for (job, *_), future in batch:
                if not future.done():
                    future.set_result(of.get(job, []))

    async def _record_all(self) -> None:
        while self._records:
            batch: list[tuple[list[Ended], list[tuple[UUID, str]], asyncio.Future[Told]]] = []
            size = 0
            while self._records and (not batch or size + len(self._records[0][0]) <= LARGEST):
                batch.append(self._records.pop(0))
                size += len(batch[-1][0])
            ended = [one for items, _, _ in batch for one in items]
            rest = [one for _, given, _ in batch for one in given]
            try:
                told = await self._patiently(lambda ended=ended, rest=rest: store.record(self._client.statements, ended, rest))
            except BaseException as error:  # noqa: BLE001  as above
                _tell(error, [future for _, _, future in batch])
                continue
            futures = [future for _, _, future in batch]
            due = self._due(Counter(one.run for one in ended), [items[0].run for items, _, _ in batch])
            if due:  # one of the jobs waits for the turns, so that they are part of its work; the others go on
                self._turns.add(task := asyncio.get_running_loop().create_task(self._turn(due, futures.pop(), told)))
                task.add_done_callback(self._turns.discard)
            _give(told, futures)

    def _due(self, recorded: Counter[UUID], jobs: Sequence[UUID]) -> list[UUID]:
        """Which runs are to be moved on now: where nothing else of theirs is at work here, or so many items have come together.

        The others follow a moment later.
        """
        self._since.update(recorded)
        ending = Counter(jobs)
        due = [run for run in recorded if self._since[run] >= TURN_AFTER or self._at_work[run] <= ending[run]]
        for run in due:
            del self._since[run]
        if self._since and self._soon is None:
            self._soon = asyncio.get_running_loop().create_task(self._turn_soon())
        return due

    async def _turn(self, runs: Sequence[UUID], future: "asyncio.Future[Told]", told: Told) -> None:
        try:
            for run in runs:
                await self._turn_now(run)
        finally:
            _give(told, [future])

    async def _turn_now(self, run: UUID) -> None:
        try:
            await self.ask(store.turn(self._client.statements, run))
        except Exception as error:  # noqa: BLE001  housekeeping does it in a moment
            log.debug("run %s was not moved on here: %s", run, error)

    async def _turn_soon(self) -> None:
        await asyncio.sleep(TURN_WITHIN)
        self._soon = None
        runs = list(self._since)
        self._since.clear()
        for run in runs:
            await self._turn_now(run)

    async def _patiently(self, make: Any) -> Any:
        """What is asked and written here may be repeated, so a lost answer is asked for again."""
        until = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                return await self.ask(make())
            except Exception as error:
                if not (isinstance(error, StoreUnavailable) or is_lost(error)) or asyncio.get_running_loop().time() > until:
                    raise
                log.warning("the items of runs wait for the store: %s", error)
            await asyncio.sleep(PAUSE)


def _give(told: Told, futures: "Sequence[asyncio.Future[Told]]") -> None:
    for future in futures:
        if not future.done():
            future.set_result(told)


def _tell(error: BaseException, futures: Sequence["asyncio.Future[Any]"]) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error if isinstance(error, Exception) else RuntimeError("the loop ends"))
    with contextlib.suppress(Exception):
        for future in futures:
            future.exception()


_clerks: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Clerk]]" = weakref.WeakKeyDictionary()


def clerk_of(client: "Client") -> Clerk:
    """The clerk of the running loop."""
    of_loop = _clerks.setdefault(asyncio.get_running_loop(), {})
    found = of_loop.get(id(client))
    if found is None or found._client is not client:  # noqa: SLF001  its own module
        found = of_loop[id(client)] = Clerk(client)
    return found

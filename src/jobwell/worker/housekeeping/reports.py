"""Sends the reports that people have subscribed to. Any live worker that can send does it, one at a time, under a lease."""

import asyncio
import logging
from functools import partial
from uuid import UUID

from jobwell.core.ids import new_id
from jobwell.core.letter import Report
from jobwell.core.subscription import Period, Subscription, pause_after
from jobwell.reports import letter, mail
from jobwell.store import report, subscriptions
from jobwell.store.database import Database
from jobwell.store.link import Link
from jobwell.store.statements import Program, T, arun
from jobwell.worker.executors.threads import Threads
from jobwell.worker.sender import Sender, said

log = logging.getLogger("jobwell.worker")

EVERY = 5.0
COMPOSE = 120.0  # seconds to read and write one
LEASE = 300.0  # longer than all of it together: two send the same only where one stands still


class Reports:
    """The service.

    Args:
        database: the store.
        link: whose connection it borrows, for one statement at a time.
        threads: where reports are read and written.
        worker: who sends.
        sender: how they get away.
    """

    def __init__(self, database: Database, link: Link, threads: Threads, worker: UUID, sender: Sender) -> None:
        self._database = database
        self._statements = database.statements
        self._link = link
        self._threads = threads
        self._worker = worker
        self._sender = sender

    async def tick(self) -> float:
        """Look for one that is due, and send it."""
        claim = new_id()
        sub = await self._run(subscriptions.take(self._statements, claim, lease=LEASE, hook=self._sender.has_hook))
        if sub is None:
            return EVERY
        if sub.test_asked is not None:
            await self._test(sub, claim)
        else:
            await self._serve(sub, claim)
        return 0.0

    async def _serve(self, sub: Subscription, claim: UUID) -> None:
        period = sub.pending or await self._due(sub)
        if period is None:
            await self._settle(sub, claim, None)
            return
        if sub.pending is None and not await self._run(subscriptions.begin(self._statements, sub, claim, period)):
            return
        done = list(sub.done)
        try:
            made = await self._compose(sub, period)
            if not made.total and not (sub.even_empty and period.kind == "daily"):
                await self._settle(sub, claim, period)
                return
            refused = await self._sender.deliver(made, done)
        except Exception as error:  # noqa: BLE001  whatever a hook or a mail server does: it is written down, and tried again
            await self._failed(sub, claim, error, done)
            return
        await self._settle(sub, claim, period, made, refused)

    async def _due(self, sub: Subscription) -> Period | None:
        """What is to be sent; the new failures are counted where a threshold asks for it."""
        window, new = sub.window(), 0
        if window is not None and sub.threshold is not None:
            new = await self._run(report.count(self._statements, sub.wanted, *window, most=sub.threshold))
        return sub.due(new)

    async def _compose(self, sub: Subscription, period: Period) -> Report:
        make = partial(letter.compose, self._database, sub, period, self._worker)
        try:
            return await asyncio.wait_for(self._threads.submit(make), COMPOSE)
        except TimeoutError:
            raise mail.NotSent(f"the report could not be made within {COMPOSE:g} s") from None

    async def _settle(
        self,
        sub: Subscription,
        claim: UUID,
        period: Period | None,
        made: Report | None = None,
        refused: dict[str, str] | None = None,
    ) -> None:
        error = "; ".join(f"{who}: {why}" for who, why in (refused or {}).items()) or None
        program = subscriptions.settle(
            self._statements, sub, claim, sub.marks(period), period=period, sent=made is not None,
            jobs=made.total if made else 0, worker=self._worker, error=f"refused for {error}" if error else None,
        )  # fmt: skip
        there = await self._run(program)
        if made is not None and period is not None:
            told = (sub.id, period.kind, made.total, len(sub.recipients))
            log.info("the report of subscription %d is sent (%s): %d job(s), to %d recipient(s)", *told)
            if not there:
                log.warning(
                    "the lease of subscription %d was over meanwhile, or it has ended: its report may be sent twice", sub.id
                )

    async def _failed(self, sub: Subscription, claim: UUID, error: Exception, done: list[str]) -> None:
        pause, why = pause_after(sub.failures + 1), said(error)
        log.warning("the report of subscription %d is not sent; again in %g s: %s", sub.id, pause, why)
        await self._run(subscriptions.fail(self._statements, sub, claim, why, pause=pause, done=done))

    async def _test(self, sub: Subscription, claim: UUID) -> None:
        period, error, jobs = sub.test(), None, None
        try:
            made = await self._compose(sub, period)
            jobs = made.total
            refused = await self._sender.deliver(made, [])
            error = "; ".join(f"{who}: {why}" for who, why in refused.items()) or None
        except Exception as raised:  # noqa: BLE001  it is told to who has asked for the test
            error = said(raised)
        await self._run(
            subscriptions.tested(self._statements, sub, claim, period, jobs=jobs, worker=self._worker, error=error)
        )  # fmt: skip

    async def _run(self, program: Program[T]) -> T:
        async with self._link.use() as conn:
            return await arun(conn, program)

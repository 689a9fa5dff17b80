"""The service that keeps breakers: passes on what calls told, decides with what all workers told, and hears how they stand."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from jobwell.core.breaker import Guard, Move, Standing, decide
from jobwell.core.events import BreakerClosed, BreakerOpened, Event
from jobwell.store import breakers
from jobwell.store.link import Link
from jobwell.store.statements import Statements, arun
from jobwell.worker.calls import Calls, Tally

log = logging.getLogger("jobwell.worker")

EVERY = 1.0  # seconds between two looks; what matters at once wakes it
WHILE_CALLED = 0.25  # between two looks while calls are made
LEAST_PAUSE = 0.02  # between two looks that were asked for at once


class Breakers:
    """The service.

    Args:
        calls: of this worker.
        opened: told when a breaker may let jobs in.
        tell: makes an event.
    """

    def __init__(
        self, statements: Statements, link: Link, calls: Calls, *, opened: Callable[[], None], tell: Callable[..., None]
    ) -> None:
        self._statements = statements
        self._link = link
        self._calls = calls
        self._guards: Mapping[str, Guard] = {name: guard for name, guard in calls.guards.items() if guard is not None}
        self._names = sorted(self._guards)
        self._opened = opened
        self._tell = tell
        self._probed: dict[str, int] = {}  # the term in which its jobs were let in
        self._last = 0.0

    async def tick(self) -> float:
        """One look."""
        now = time.monotonic()
        if now - self._last < LEAST_PAUSE:
            return LEAST_PAUSE
        self._last = now
        taken = left = self._calls.take()
        try:
            async with self._link.use() as conn:
                standings = await self._feed(conn, taken)
                left = [(resource, tally.wish) for resource, tally in taken]  # what was counted is stored; wishes are not yet
                if len(standings) < len(self._names):  # another release has taken them out
                    await arun(conn, breakers.declare(self._statements, self._guards))
                    standings = await self._feed(conn, [])
                for at in standings:
                    await self._decide(conn, at, taken)
        except BaseException:
            self._calls.give_back(left)
            raise
        return self._rest(taken)

    async def _feed(self, conn: Any, taken: list[tuple[str, Tally]]) -> list[Standing]:
        """In one row for each resource: what was begun in an earlier term is counted for the budget only."""
        rows: dict[str, dict[str, Any]] = {}
        for resource, tally in sorted(taken, key=lambda each: each[1].term):
            row = rows.setdefault(resource, {"resource": resource, "firsts": 0, "retries": 0})
            row |= {"term": tally.term, "good": tally.good, "bad": tally.bad}
            row["firsts"] += tally.firsts
            row["retries"] += tally.retries
        given = [rows[resource] for resource in sorted(rows)]
        standings = await arun(conn, breakers.feed(self._statements, given, self._names))
        self._calls.learn(standings, time.monotonic())
        return standings

    async def _decide(self, conn: Any, at: Standing, taken: list[tuple[str, Tally]]) -> None:
        rule = self._guards[at.resource].breaker
        if rule is None:
            return
        mine = [tally for resource, tally in taken if resource == at.resource]
        wish = Tally(said=next((tally.said for tally in mine if tally.said), ""))
        for tally in mine:
            if tally.asked is not None:
                wish.wishes(tally.asked, tally.asked_at)
        to = decide(rule, at, asked=wish.asked, ago=time.monotonic() - wish.asked_at, said=wish.said)
        if to is None:
            return
        changed = await arun(conn, breakers.move(self._statements, at, to))
        self._calls.learn(await arun(conn, breakers.feed(self._statements, [], [at.resource])), time.monotonic())
        if changed:
            self._told(at, to)

    def _told(self, at: Standing, to: Move) -> None:
        if to.until is None:
            log.warning("the breaker of %s is closed: %s", at.resource, to.why)
            self._event(BreakerClosed, resource=at.resource, why=to.why)
            self._opened()
            return
        log.warning("the breaker of %s is open until %s: %s", at.resource, to.until.isoformat(timespec="seconds"), to.why)
        if not to.extends:
            self._event(BreakerOpened, resource=at.resource, why=to.why, until=to.until)

    def _event(self, kind: type[Event], **about: Any) -> None:
        self._tell(kind, **about)

    def _rest(self, taken: list[tuple[str, Tally]]) -> float:
        """Until the next look; and when a breaker's time is over, this worker's claims go on at once."""
        now, rest = time.monotonic(), WHILE_CALLED if taken else EVERY
        for resource, known in self._calls.known.items():
            if not known.at.open or known.until <= 0:
                continue
            if known.until > now:
                rest = min(rest, known.until - now + 0.005)
            elif self._probed.get(resource) != known.at.term:
                self._probed[resource] = known.at.term
                self._opened()
        return max(rest, 0.005)

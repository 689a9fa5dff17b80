"""Tasks that no live worker knows: said aloud, and after a while left to a person."""

import logging
import time

from jobwell.core.duration import text
from jobwell.store import control
from jobwell.store.control import PIECE
from jobwell.store.link import Link
from jobwell.store.statements import Statements, arun

log = logging.getLogger("jobwell.worker")

EVERY = 30.0
SAID_AFTER = 60.0  # seconds: a deploy takes a moment
SAID_EVERY = 600.0


class UnknownTasks:
    """The service.

    Args:
        give_up_after: seconds of being ready after which such a job waits in the quarantine instead.
    """

    def __init__(self, statements: Statements, link: Link, give_up_after: float) -> None:
        self._statements = statements
        self._link = link
        self._give_up_after = give_up_after
        self._said: dict[str, float] = {}

    async def tick(self) -> float:
        """One look."""
        async with self._link.use() as conn:
            for found in await arun(conn, control.unknown(self._statements)):
                self._say(found)
                if found.waits > self._give_up_after:
                    moved = await arun(conn, control.give_up(self._statements, found, seconds=self._give_up_after))
                    log.error("%d job(s) of %s wait in the quarantine as unsupported: no live worker knows it", moved, found.task)
                    if moved >= PIECE:
                        return 0.0
        return EVERY

    def _say(self, found: control.Unknown) -> None:
        now = time.monotonic()
        if found.waits < SAID_AFTER or now - self._said.get(found.task, -SAID_EVERY) < SAID_EVERY:
            return
        self._said[found.task] = now
        log.warning(
            "no live worker knows the task %s: %d job(s) of queue %s wait for it, the oldest for %s; deploy a worker that does",
            found.task, found.jobs, found.queue, text(found.waits),
        )  # fmt: skip

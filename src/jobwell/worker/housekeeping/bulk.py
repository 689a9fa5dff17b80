"""Goes on with actions on many jobs whose driver is gone: a closed laptop must not leave half of them untouched."""

import logging
from uuid import UUID

from jobwell.core.errors import Conflict
from jobwell.store import control
from jobwell.store.link import Link
from jobwell.store.statements import Statements, arun

log = logging.getLogger("jobwell.worker")

EVERY = 5.0
ABANDONED_AFTER = 15.0  # seconds without a piece; one takes well below a second


class Bulk:
    """The service.

    Args:
        link: whose connection it borrows, for one piece at a time.
        abandoned_after: seconds after which an action that does not move is taken over.
    """

    def __init__(self, statements: Statements, link: Link, *, abandoned_after: float = ABANDONED_AFTER) -> None:
        self._statements = statements
        self._link = link
        self._abandoned_after = abandoned_after
        self._action: UUID | None = None
        self._foreign: set[UUID] = set()  # of another release, which goes on with them

    async def tick(self) -> float:
        """Look for one, or do a piece of the one that was found."""
        async with self._link.use() as conn:
            if self._action is None:
                self._action = await arun(
                    conn, control.abandoned(self._statements, seconds=self._abandoned_after, but=self._foreign)
                )
                if self._action is None:
                    return EVERY
                log.warning("action %s was left in the middle; this worker goes on with it", self._action)
            try:
                async with conn.transaction():
                    done = await arun(conn, control.step(self._statements, self._action))
            except Conflict as error:
                log.warning("%s", error)
                self._foreign.add(self._action)
                self._action = None
                return EVERY
        if done is None or done[1]:
            self._action = None
        return 0.0

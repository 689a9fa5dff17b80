"""Tells running jobs that an operator has cancelled them."""

import logging
from collections.abc import Callable
from uuid import UUID

from jobwell.store import control
from jobwell.store.link import Link
from jobwell.store.statements import Statements, arun

log = logging.getLogger("jobwell.worker")

EVERY = 1.0


class Cancels:
    """The service that asks for them.

    Args:
        worker: whose jobs.
        stop: stops an attempt by its job and claim.
    """

    def __init__(self, statements: Statements, link: Link, worker: UUID, stop: Callable[[UUID, UUID], None]) -> None:
        self._statements = statements
        self._link = link
        self._worker = worker
        self._stop = stop

    async def tick(self) -> float:
        """One look. A job that goes on is told again each time."""
        async with self._link.use() as conn:
            found = await arun(conn, control.cancels_of(self._statements, self._worker))
        for job, claim in found:
            self._stop(job, claim)
        return EVERY

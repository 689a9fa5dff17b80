"""What operators tell this worker: cancelled jobs, and to end itself."""

from collections.abc import Callable
from uuid import UUID

from jobwell.store import control
from jobwell.store.link import Link
from jobwell.store.statements import Statements, arun

EVERY = 1.0


class Orders:
    """The service that asks for them.

    Args:
        worker: who asks.
        stop: stops an attempt by its job and claim.
        end: ends the worker: "drain" or "stop".
    """

    def __init__(
        self, statements: Statements, link: Link, worker: UUID, *, stop: Callable[[UUID, UUID], None], end: Callable[[str], None]
    ) -> None:
        self._statements = statements
        self._link = link
        self._worker = worker
        self._stop = stop
        self._end = end

    async def tick(self) -> float:
        """One look. A job that goes on is told again each time."""
        async with self._link.use() as conn:
            cancelled, asked = await arun(conn, control.orders(self._statements, self._worker))
        for job, claim in cancelled:
            self._stop(job, claim)
        if asked is not None:
            self._end(asked)
        return EVERY

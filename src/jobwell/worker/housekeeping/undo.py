"""Goes on where a step of a job that was called off is undone: the next one, the last first."""

from jobwell.store import steps
from jobwell.store.link import Link
from jobwell.store.statements import Statements, arun

EVERY = 2.0


class Undo:
    """The service, in every worker; each step is settled by one of them."""

    def __init__(self, statements: Statements, link: Link) -> None:
        self._statements = statements
        self._link = link

    async def tick(self) -> float:
        """One piece."""
        async with self._link.use() as conn:
            settled = await arun(conn, steps.go_on_undoing(self._statements))
        return 0.0 if settled else EVERY

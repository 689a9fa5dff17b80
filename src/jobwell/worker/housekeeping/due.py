"""Flips due jobs to ready."""

from collections.abc import Callable

from jobwell.store.jobs import JobVerbs
from jobwell.store.link import Link

PIECE = 1000


class Due:
    """The due service.

    Args:
        longest: seconds between two looks at the most.
        flipped: told when jobs became ready.
    """

    def __init__(self, verbs: JobVerbs, link: Link, longest: float, flipped: Callable[[], None]) -> None:
        self._verbs = verbs
        self._link = link
        self._longest = longest
        self._flipped = flipped

    async def tick(self) -> float:
        """One piece, one commit."""
        async with self._link.use() as conn:
            count, next_in = await self._verbs.flip_due(conn, PIECE)
        if count:
            self._flipped()
        if count >= PIECE:
            return 0.0
        return min(self._longest, max(next_in, 0.002)) if next_in is not None else self._longest

"""The database's time in a process: what it said last, and the monotonic time since. The host's clock may be wrong, or jump."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from jobwell.core.skew import TOO_MUCH, in_words

log = logging.getLogger("jobwell.worker")


class Clock:
    """Tells the database's time without asking it; told by one thread, read by any.

    Args:
        monotonic, wall: seconds; the second is what people take for the time on this host.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._word = (datetime.fromtimestamp(wall(), UTC), monotonic())
        self._warned = False
        self.skew: float | None = None

    def now(self) -> datetime:
        """The database's time; before its first word, this host's."""
        said, at = self._word
        return said + timedelta(seconds=self._monotonic() - at)

    def said(self, now: datetime, server: datetime, began: float) -> None:
        """The database has said its time: somewhere between the question and now, so the middle is taken.

        Args:
            now: by which all facts go.
            server: of its host's clock; the same, but in tests that travel.
            began: monotonic, of the question.
        """
        middle = (self._monotonic() - began) / 2
        self.goes_by(now, middle)
        self.skew = self._wall() - middle - server.timestamp()
        self._judge(self.skew)

    def goes_by(self, now: datetime, ago: float = 0.0) -> None:
        """The database's time was this, so many seconds ago."""
        self._word = (now, self._monotonic() - ago)

    def _judge(self, skew: float) -> None:
        wrong = abs(skew) > TOO_MUCH
        if wrong and not self._warned:
            log.warning("this host's clock is %s the database's; jobs go by the database's", in_words(skew))
        if self._warned and not wrong:
            log.info("this host's clock agrees with the database's again")
        self._warned = wrong

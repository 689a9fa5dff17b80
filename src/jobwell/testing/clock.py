"""The clock of a test's schema: due times, deadlines, leases, windows and retries all read it, in every session."""

from datetime import datetime, timedelta
from typing import Any

from psycopg import Connection

from jobwell.core import duration
from jobwell.core.duration import Duration
from jobwell.store import testing as store
from jobwell.testing.errors import TestbedError

__tracebackhide__ = True  # pytest shows the test and the task, not what is between


class Clock:
    """Moves the time of one schema that the kit has made; of no other.

    Every session reads the new time from its next statement on; a transaction that is open already may read the old one to
    its end. What Python measures stays real: the time limit of an attempt, `ctx.remaining()` while it runs, and whatever
    user code asks of `datetime.now()`.

    Args:
        conn: a connection of the kit.
        schema: made by the kit.
    """

    def __init__(self, conn: "Connection[Any]", schema: str) -> None:
        self._conn = conn
        self._schema = schema
        self._ahead = timedelta()
        self._at: datetime | None = None

    def now(self) -> datetime:
        """The time that the store reads."""
        if self._at is not None:
            return self._at
        return store.real_time(self._conn) + self._ahead

    @property
    def frozen(self) -> bool:
        """Whether it stands still."""
        return self._at is not None

    def travel(self, by: Duration) -> datetime:
        """Go forward; from there the clock goes on (or stands still, when it is frozen).

        Args:
            by: a duration ("2h", 7200, timedelta). A negative timedelta goes back.

        Returns:
            The time now.

        Raises:
            StoreRefused: the schema was not made by the kit.
        """
        step = by if isinstance(by, timedelta) else timedelta(seconds=duration.seconds(by, "travel"))
        if self._at is not None:
            return self._set(at=self._at + step)
        return self._set(ahead=self._ahead + step)

    def travel_to(self, moment: datetime) -> datetime:
        """Go to a moment; from there the clock goes on (or stands still, when it is frozen).

        Raises:
            TestbedError: it has no time zone.
        """
        _aware(moment)
        if self._at is not None:
            return self._set(at=moment)
        return self._set(ahead=moment - store.real_time(self._conn))

    def freeze(self, at: datetime | None = None) -> datetime:
        """Stand still.

        Args:
            at: where (default: now).
        """
        return self._set(at=self.now() if at is None else _aware(at))

    def reset(self) -> None:
        """The real time again."""
        if self._at is not None or self._ahead:
            self._set()

    def _set(self, *, ahead: timedelta = timedelta(), at: datetime | None = None) -> datetime:
        store.set_clock(self._conn, self._schema, ahead=ahead, at=at)
        self._ahead, self._at = ahead, at
        return self.now()


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise TestbedError(f"{moment!r} has no time zone; give an aware datetime, such as datetime(2031, 1, 1, tzinfo=UTC)")
    return moment

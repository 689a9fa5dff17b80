"""How far a job is, as it says itself."""

from dataclasses import dataclass
from datetime import datetime

from jobwell.core import text
from jobwell.core.errors import InvalidArguments

NOTE_LIMIT = 500
MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job has said that it is.

    Attributes:
        done: so many.
        total: of so many; None where it did not say.
        note: in its own words; empty where it gave none.
        at: when that was stored.
    """

    done: int
    total: int | None
    note: str
    at: datetime

    @property
    def share(self) -> float | None:
        """From 0 to 1; None where there is no total."""
        return None if self.total is None else 1.0 if self.total == 0 else self.done / self.total

    def __str__(self) -> str:
        """For people."""
        of = "" if self.total is None else f" of {self.total:,} ({int((self.share or 0.0) * 100)} %)"
        return f"{self.done:,}{of}{f': {self.note}' if self.note else ''}"


@dataclass(frozen=True, slots=True)
class Report:
    """One word about it."""

    done: int
    total: int | None = None
    note: str = ""


def report(done: int, total: int | None, note: str) -> Report:
    """A checked one. A total that was passed grows: it was an estimate.

    Raises:
        InvalidArguments: no whole numbers, or negative ones.
    """
    for name, value in (("done", done), ("total", total)):
        whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST
        if not whole and not (name == "total" and value is None):
            raise InvalidArguments(f"ctx.progress: {name}={value!r} must be a whole number, 0 or more", name)
    return Report(done, None if total is None else max(total, done), text.clean(str(note), NOTE_LIMIT))


def later(before: Report | None, now: Report) -> Report:
    """What holds of two words of one attempt. Parts that run side by side speak out of order: that takes nothing back."""
    if before is None or before.total != now.total or now.done >= before.done:
        return now
    return Report(before.done, before.total, now.note or before.note)

"""How an attempt ends: what task code raises, and the values that they become inside."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from jobwell.core.duration import Duration, seconds
from jobwell.core.errors import DeclarationError
from jobwell.core.states import Reason

Moment = Duration | datetime

# Why a succeeded job has no result. Every such note begins with the same words, which tells it from other notes.
NO_RESULT = "its result "
RESULT_EXPIRED = "its result has expired"
RESULT_NOT_KEPT = "its result is not kept: its task says keep_result=False"


def after_seconds(value: Moment, now: datetime, name: str) -> float:
    """Seconds from `now` until `value`: a duration, seconds as text ("120"), an aware datetime, or an HTTP date. Never negative.

    Raises:
        DeclarationError: it cannot be read, or the datetime has no zone.
    """
    if isinstance(value, str):
        value = value.strip()
        if value.isdecimal():
            value = float(value)  # of any length: what is no number of seconds any more is refused below
        elif value[:3] in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"):
            try:
                value = parsedate_to_datetime(value)
            except (ValueError, OverflowError):
                raise DeclarationError(f"{name}={value!r} is not an HTTP date") from None
            if value.tzinfo is None:
                value = value.replace(tzinfo=UTC)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise DeclarationError(f"{name}={value!r} has no time zone; give an aware datetime, such as datetime.now(UTC)")
        return max(0.0, (value - now).total_seconds())
    return seconds(value, name)


class Reject(Exception):
    """Stop at once: a logical error that no retry can mend. The job goes to the quarantine as `rejected`.

    Args:
        code: a short stable name that programs and people can filter by.
        message: a sentence for the person who will look at it.
    """

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message or code


class Retry(Exception):
    """Ask for another attempt. It counts as a failure, so it is bounded by the attempts and the deadline.

    Args:
        message: why, for the person who looks at the job.
        after: not earlier than this: a duration ("2m", 120), an aware datetime, or the text of a
            `Retry-After` header (seconds or HTTP date). Without it the task's retry rule decides.
        queue: where it runs then; one that the app declares. Without it the rule decides, or it stays where it is.
        priority: that it has then, -100 to 100; likewise.
    """

    def __init__(
        self, message: str = "", *, after: Moment | None = None, queue: str | None = None, priority: int | None = None
    ) -> None:
        super().__init__(message or "the task asked for another attempt")
        self.after = after
        self.queue = queue
        self.priority = priority


class Snooze(Exception):
    """Not yet: look again later. Costs no attempt; bounded by the job's deadline.

    Args:
        until: a duration from now, or an aware datetime.
        message: why.
    """

    def __init__(self, until: Moment, message: str = "") -> None:
        super().__init__(message or "snoozed")
        self.until = until


class Compensate(Exception):
    """Call the whole job off: it is over as `cancelled`, and what its steps have done is undone, the last one first.

    Args:
        code: a short stable name.
        message: a sentence for the person who will look at it.
    """

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message or code


class Lost(BaseException):
    """The job is no longer this attempt's: another one may run it by now. Ends the attempt, of which nothing is written.

    Raised by what an attempt stores on its way (checkpoints, transactions) when the store says so; `except Exception` does not
    catch it.
    """


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, as texts: cleaned, cut, and never rebuilt as an exception."""

    error_type: str
    message: str
    traceback: str = ""
    place: str = ""
    kind: str = "unknown"  # temporary, logical, throttled, unknown
    origin: str | None = None  # code, external, limits, validation; None: nobody has said


@dataclass(frozen=True, slots=True)
class Succeeded:
    """Done. `result` is encoded JSON or None; `note` says why a result is missing."""

    result: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Expiring(Succeeded):
    """Done, with a result that is kept for `ttl` seconds only. A class of its own, so that all others do not pay for it."""

    ttl: float = 0.0


@dataclass(frozen=True, slots=True)
class Committed(Succeeded):
    """Done, and stored by the task's own transaction: there is nothing to write any more."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Over: to the quarantine."""

    reason: Reason
    failure: Failure
    code: str | None = None
    counts: bool = True  # as a failure of the task


@dataclass(frozen=True, slots=True)
class Retrying:
    """Another attempt after `delay` seconds; in another queue, or with another priority, where these are given."""

    delay: float
    failure: Failure
    note: str | None = None
    queue: str | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Snoozed:
    """Later, uncounted."""

    delay: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class Released:
    """Handed back as ready, uncounted: shutdown, or an attempt that never began.

    Attributes:
        begun: whether its code was begun; if not, rates give back what was charged for it.
    """

    cause: str
    delay: float = 0.0
    begun: bool = True


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Stopped, as an operator asked; what it raised besides is told."""

    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Crashed:
    """Its process died in the middle. Counted apart from failures, and bounded apart."""

    how: str  # the signal or the code, and where


Outcome = Succeeded | Failed | Retrying | Snoozed | Released | Cancelled | Crashed

KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Succeeded, Expiring, Committed, Failed, Retrying, Snoozed, Released, Cancelled, Crashed)
}  # fmt: skip


def dumped(outcome: Outcome) -> dict[str, Any]:
    """As plain data, to cross between processes."""
    return {"kind": type(outcome).__name__, **asdict(outcome)}


def loaded(data: Mapping[str, Any]) -> Outcome:
    """The same again.

    Raises:
        KeyError, TypeError, ValueError: it is no outcome.
    """
    given = dict(data)
    kind = KINDS[given.pop("kind")]
    if given.get("failure") is not None:
        given["failure"] = Failure(**given["failure"])
    if "reason" in given:
        given["reason"] = Reason(given["reason"])
    made: Outcome = kind(**given)
    return made

"""Circuit breakers and retry budgets of resources: when one opens, for how long, what closes it. Pure: time and counts are given.

closed ── too many calls fail, or it asks for a pause ──→ open ── its time is over ──→ probing ── a probe goes well ──→ closed
                                                           ↑──── a probe fails: open for longer ──────┘
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from jobwell.core.classify import Verdict
from jobwell.core.duration import Duration, seconds, text
from jobwell.core.errors import DeclarationError

LONGEST_ASKED: Final = 86400.0  # a day: a resource that asks for more is answered with a day, and a note
BUDGET_FLOOR: Final = 5  # retries in a window that are granted however few first attempts there were
LONGEST_PUT_OFF: Final = 10.0  # windows
BUDGET_WINDOW: Final = 30.0  # seconds, where there is no breaker to say

State = Literal["closed", "open", "probing"]
Told = Literal["good", "bad"]


@dataclass(frozen=True, init=False)
class Breaker:
    """When calls of a resource are stopped: `app.resource("sms-gateway", breaker=Breaker(failures=0.5, window="30s"))`.

    Args:
        failures: share of the calls in the window, above 0 to 1, from which on it opens.
        window: the time over which calls are counted, 1 s to 1 h.
        at_least: calls in the window below which nothing is concluded.
        open: for how long it opens at first; each failed probe doubles that.
        longest: for how long at the most.
        probes: jobs that may try at once after that, in the whole fleet; so many good calls close it.

    Guarantee: while it is open no job of the resource is claimed, so that none spends an attempt. Only what happens inside
    `ctx.call(…)` of that resource counts.

    Raises:
        DeclarationError: a value is out of range.
    """

    failures: float
    window: float
    at_least: int
    open: float
    longest: float
    probes: int

    def __init__(
        self,
        *,
        failures: float = 0.5,
        window: Duration = "30s",
        at_least: int = 10,
        open: Duration = "10s",  # noqa: A002  as people say it
        longest: Duration = "5m",
        probes: int = 1,
    ) -> None:
        if isinstance(failures, bool) or not isinstance(failures, int | float) or not 0 < failures <= 1:
            raise DeclarationError(f"failures={failures!r} must be a share of the calls, above 0 and up to 1")
        for name, value in (("at_least", at_least), ("probes", probes)):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000:
                raise DeclarationError(f"{name}={value!r} must be a whole number from 1 to 10,000")
        times = {"window": _within(window, "window", 3600), "open": _within(open, "open", LONGEST_ASKED)}
        times["longest"] = _within(longest, "longest", LONGEST_ASKED)
        if times["longest"] < times["open"]:
            raise DeclarationError(f"longest={longest!r} must not be shorter than open={open!r}")
        for name, given in {"failures": float(failures), "at_least": at_least, "probes": probes, **times}.items():
            object.__setattr__(self, name, given)

    def opens_for(self, before: int) -> float:
        """Seconds for which it opens, when it was opened so often in a row before."""
        return min(self.longest, self.open * 2.0 ** min(before, 64))


def _within(value: Duration, name: str, most: float) -> float:
    found = seconds(value, name)
    if not 1 <= found <= most:
        raise DeclarationError(f"{name}={value!r} must be from 1 s to {text(most)}")
    return found


@dataclass(frozen=True, slots=True)
class Guard:
    """What is declared for a resource besides its limits.

    Attributes:
        breaker: None: it never opens.
        budget: share of first attempts that may be retries; None: no such budget.
    """

    breaker: Breaker | None = None
    budget: float | None = None

    @property
    def window(self) -> float:
        """Seconds over which is counted."""
        return self.breaker.window if self.breaker is not None else BUDGET_WINDOW


def check_budget(value: float | None) -> float | None:
    """Refuse what is no share.

    Raises:
        DeclarationError: with what would be right.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10):
        raise DeclarationError(f"retry_budget={value!r} must be a share of the first attempts, such as 0.2")
    return value


@dataclass(frozen=True, slots=True)
class Standing:
    """A breaker as it is stored, at `now`.

    Attributes:
        term: grows with each change.
        opens: times that it was opened in a row.
        good, bad: calls in the window, since the last change.
        firsts, retries: attempts in the window.
    """

    resource: str
    open: bool
    term: int
    until: datetime | None
    opens: int
    good: int
    bad: int
    firsts: int
    retries: int
    now: datetime

    @property
    def state(self) -> State:
        """Closed, open or probing."""
        if not self.open:
            return "closed"
        return "open" if self.until is None or self.until > self.now else "probing"


@dataclass(frozen=True, slots=True)
class Move:
    """What is to become of a breaker.

    Attributes:
        until: when an open one lets probes in; None: it closes.
        opens: in a row, with this one.
        extends: it stays open, for longer.
    """

    until: datetime | None
    opens: int
    why: str
    extends: bool = False


def decide(rule: Breaker, at: Standing, *, asked: float | None = None, ago: float = 0.0, said: str = "") -> Move | None:
    """What follows from what was told; None: it stays as it is.

    Args:
        rule: the declared one.
        at: how it stands.
        asked: seconds for which the resource asked not to be called.
        ago: seconds since it asked.
        said: the last error, in a few words.
    """
    if asked is not None and asked > ago:
        return _paused(at, asked, ago, said)
    last = f"; the last one: {said}" if said else ""
    if at.state == "closed":
        calls = at.good + at.bad
        if calls < rule.at_least or at.bad < rule.failures * calls:
            return None
        return _opened(rule, at, f"{at.bad} of {calls} calls within {text(rule.window)} failed{last}")
    if at.state == "open":
        return None
    if at.bad:
        return _opened(rule, at, f"a probe failed{last}")
    return Move(None, 0, "a probe went well") if at.good >= rule.probes else None


def _opened(rule: Breaker, at: Standing, why: str) -> Move:
    return Move(at.now + timedelta(seconds=rule.opens_for(at.opens)), at.opens + 1, why)


def _paused(at: Standing, asked: float, ago: float, said: str) -> Move | None:
    held = min(asked, LONGEST_ASKED)
    cut = "" if held == asked else f", cut to {text(held)}"
    until = at.now + timedelta(seconds=held - ago)
    why = f"it asked not to be called for {text(asked)}{cut}" + (f": {said}" if said else "")
    if at.state != "open":
        return Move(until, at.opens + 1, why)
    if at.until is None or until <= at.until + timedelta(seconds=0.25):
        return None
    return Move(until, at.opens, why, extends=True)


def told_by(error: Exception | None, verdict: Verdict | None) -> Told | None:
    """What the end of a call says about the resource; None: nothing.

    A logical error is an answer: the resource works. An error of a kind that nobody knows counts against it, unless it is one of
    Python's own, which tells of a fault in the code around the call.
    """
    if error is None or verdict is None:
        return "good"
    if verdict.kind in ("temporary", "throttled") or verdict.status in (429, 503):
        return "bad"
    if verdict.kind == "logical":
        return "good"
    if type(error).__module__ == "builtins" and not isinstance(error, OSError):
        return None
    return "bad"


def put_off(share: float, window: float, *, firsts: int, retries: int, uniform: float) -> float | None:
    """Seconds by which a retry is put off because the budget of its resource is spent; None: it is granted.

    The more retries there are above the budget, the later: at about the rate at which the budget would grant them.

    Args:
        share: retries for each first attempt.
        window: seconds over which both were counted.
        firsts: first attempts in it.
        retries: those granted or put off in it.
        uniform: a number in [0, 1).
    """
    allowed = max(BUDGET_FLOOR, share * firsts)
    if retries < allowed:
        return None
    return window * min(LONGEST_PUT_OFF, (retries - allowed) / allowed + 0.5 + uniform)

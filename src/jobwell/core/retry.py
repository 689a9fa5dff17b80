"""When the next attempt is due. Pure: the random number is given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jobwell.core.duration import Duration, seconds, text
from jobwell.core.errors import DeclarationError

Uniform = Callable[[], float]  # a number in [0, 1)
LONGEST_ASKED = 86400.0  # a day: a server that asks for more is answered with a day, and a note


def _attempts(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise DeclarationError(f"attempts={value!r} must be a whole number from 1 to 1000")
    return value


def _share(value: float) -> float:
    if not 0 <= value <= 1:
        raise DeclarationError(f"jitter={value!r} must be from 0 to 1")
    return float(value)


@dataclass(frozen=True, init=False)
class Backoff:
    """Exponential: `min(cap, base * factor ** (failures - 1))`, spread by jitter.

    Args:
        base: the first delay.
        factor: growth per failure, 1 to 100.
        cap: the longest delay.
        attempts: how many in all, the first included, 1 to 1000.
        jitter: "full" draws from 0 to the delay, so that a herd does not come back at once; "none" does not draw.
    """

    base: float
    factor: float
    cap: float
    attempts: int
    jitter: Literal["full", "none"]

    def __init__(
        self,
        base: Duration = "10s",
        *,
        factor: float = 3,
        cap: Duration = "10m",
        attempts: int = 5,
        jitter: Literal["full", "none"] = "full",
    ) -> None:
        if not 1 <= factor <= 100:
            raise DeclarationError(f"factor={factor!r} must be from 1 to 100")
        if jitter not in ("full", "none"):
            raise DeclarationError(f"jitter={jitter!r} must be 'full' or 'none'")
        object.__setattr__(self, "base", seconds(base, "base"))
        object.__setattr__(self, "factor", float(factor))
        object.__setattr__(self, "cap", seconds(cap, "cap"))
        object.__setattr__(self, "attempts", _attempts(attempts))
        object.__setattr__(self, "jitter", jitter)

    def delay(self, failures: int, uniform: Uniform) -> float:
        """Seconds until the next attempt after this many failures (1 or more)."""
        # The exponent is bounded before the power is: 100 ** 999 is no float.
        steps = min(failures - 1, 64)
        longest = min(self.cap, self.base * self.factor**steps)
        return longest * uniform() if self.jitter == "full" else longest


@dataclass(frozen=True, init=False)
class Fixed:
    """The same delay each time.

    Args:
        every: the delay.
        attempts: how many in all, the first included.
        jitter: share of the delay, 0 to 1, by which it is drawn up or down.
    """

    every: float
    attempts: int
    jitter: float

    def __init__(self, every: Duration, *, attempts: int = 5, jitter: float = 0.2) -> None:
        object.__setattr__(self, "every", seconds(every, "every"))
        object.__setattr__(self, "attempts", _attempts(attempts))
        object.__setattr__(self, "jitter", _share(jitter))

    def delay(self, failures: int, uniform: Uniform) -> float:
        """Seconds until the next attempt."""
        return self.every * (1 + self.jitter * (2 * uniform() - 1))


@dataclass(frozen=True, init=False)
class Delays:
    """A list of delays, one for each retry: `Delays("10s", "30s", "2m", "10m")` makes five attempts.

    Args:
        delays: one for each retry, in order.
        jitter: share of the delay, 0 to 1, by which it is drawn up or down.
    """

    delays: tuple[float, ...]
    jitter: float

    def __init__(self, *delays: Duration, jitter: float = 0.2) -> None:
        if not delays:
            raise DeclarationError("Delays() needs at least one delay, such as Delays('10s', '30s', '2m', '10m')")
        object.__setattr__(self, "delays", tuple(seconds(delay, "delay") for delay in delays))
        object.__setattr__(self, "jitter", _share(jitter))

    @property
    def attempts(self) -> int:
        """How many in all, the first included."""
        return len(self.delays) + 1

    def delay(self, failures: int, uniform: Uniform) -> float:
        """Seconds until the next attempt."""
        planned = self.delays[min(failures, len(self.delays)) - 1]
        return planned * (1 + self.jitter * (2 * uniform() - 1))


RetryRule = Backoff | Fixed | Delays
NEVER = Fixed("0s", attempts=1)
DEFAULT = Backoff()
UNKNOWN_ATTEMPTS = 3  # for errors that nothing is known about


@dataclass(frozen=True, slots=True)
class Plan:
    """The next attempt: after `delay` seconds, with a note where the wish was not followed to the letter."""

    delay: float
    note: str | None = None


def next_attempt(
    rule: RetryRule, *, failures: int, kind: str, asked: float | None, remaining: float | None, uniform: Uniform
) -> Plan | Literal["exhausted", "deadline"]:
    """Decide about another attempt.

    Args:
        rule: the task's retry rule.
        failures: how often it has failed, this one included.
        kind: temporary, throttled, logical or unknown; unknown errors get at most three attempts.
        asked: seconds that the other side or the task asked to wait: a floor. Above a day it is cut to a day, with a note.
        remaining: seconds until the deadline; nothing is planned past it.
        uniform: draws from [0, 1).

    Returns:
        The plan, or why there is none.
    """
    attempts = min(rule.attempts, UNKNOWN_ATTEMPTS) if kind == "unknown" else rule.attempts
    if failures >= attempts:
        return "exhausted"
    note = None
    if asked is None:
        delay = rule.delay(failures, uniform)
    else:
        floor = min(asked, LONGEST_ASKED)
        if floor < asked:
            note = f"asked to wait {text(asked)}; cut to {text(floor)}"
        # Never earlier than asked, and spread evenly behind it, over the rule's own window but at most a minute: jobs that
        # were told the same second must not return in one.
        window = max(rule.delay(failures, lambda: 1.0), floor * 0.1)
        delay = floor + min(window, 60.0) * uniform()
    if remaining is not None and delay >= remaining:
        return "deadline"
    return Plan(delay, note)

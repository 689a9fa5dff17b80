"""When the next attempt is due. Pure: the random number is given."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import nextafter
from typing import Final, Literal, get_args

from jobwell.core.classify import Verdict
from jobwell.core.duration import Duration, seconds, text
from jobwell.core.elsewhere import Elsewhere
from jobwell.core.errors import DeclarationError

Uniform = Callable[[], float]  # a number in [0, 1)
Jitter = Literal["full", "equal", "decorrelated", "none"]
LONGEST_CHAIN: Final = 64  # draws of one decorrelated delay
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
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
class Backoff(Elsewhere):
    """Exponential: `min(cap, base * factor ** (failures - 1))`, spread by jitter.

    Args:
        base: the first delay.
        factor: growth per failure, 1 to 100.
        cap: the longest delay.
        attempts: how many in all, the first included, 1 to 1000.
        jitter: how a delay is drawn, so that a herd does not come back at once. "full": from 0 to the delay. "equal": from half
            of it to all of it. "decorrelated": from `base` to `factor` times the delay before, at most `cap`. "none": not drawn.
        queue: where the retries run (default: where the job stands).
        priority: of the retries (default: as the job has it).
        from_attempt: the first attempt that runs there (default: 2, the first retry).

    A decorrelated delay needs no memory: those before it are drawn anew each time, so that each delay is distributed as in a
    chain whose links are kept, and is no longer tied to what this job itself has waited before.
    """

    base: float
    factor: float
    cap: float
    attempts: int
    jitter: Jitter

    def __init__(
        self,
        base: Duration = "10s",
        *,
        factor: float = 3,
        cap: Duration = "10m",
        attempts: int = 5,
        jitter: Jitter = "full",
        queue: str | None = None,
        priority: int | None = None,
        from_attempt: int = 2,
    ) -> None:
        self._says(queue, priority, from_attempt)
        if not 1 <= factor <= 100:
            raise DeclarationError(f"factor={factor!r} must be from 1 to 100")
        if jitter not in get_args(Jitter):
            raise DeclarationError(f"jitter={jitter!r} must be 'full', 'equal', 'decorrelated' or 'none'")
        object.__setattr__(self, "base", seconds(base, "base"))
        object.__setattr__(self, "factor", float(factor))
        object.__setattr__(self, "cap", seconds(cap, "cap"))
        object.__setattr__(self, "attempts", _attempts(attempts))
        object.__setattr__(self, "jitter", jitter)

    def delay(self, failures: int, uniform: Uniform) -> float:
        """Seconds until the next attempt after this many failures (1 or more)."""
        if self.jitter == "decorrelated":
            return self._chained(failures, uniform)
        # The exponent is bounded before the power is: 100 ** 999 is no float.
        steps = min(failures - 1, 64)
        longest = min(self.cap, self.base * self.factor**steps)
        if self.jitter == "full":
            return longest * uniform()
        return longest / 2 + longest / 2 * uniform() if self.jitter == "equal" else longest

    def _chained(self, failures: int, uniform: Uniform) -> float:
        least = delay = min(self.base, self.cap)
        for _ in range(min(failures, LONGEST_CHAIN)):
            delay = min(self.cap, least + (delay * self.factor - least) * uniform())
        return delay


@dataclass(frozen=True, init=False)
class Fixed(Elsewhere):
    """The same delay each time.

    Args:
        every: the delay.
        attempts: how many in all, the first included.
        jitter: share of the delay, 0 to 1, by which it is drawn up or down.
        queue, priority, from_attempt: where the retries run, as for `Backoff`.
    """

    every: float
    attempts: int
    jitter: float

    def __init__(
        self,
        every: Duration,
        *,
        attempts: int = 5,
        jitter: float = 0.2,
        queue: str | None = None,
        priority: int | None = None,
        from_attempt: int = 2,
    ) -> None:
        self._says(queue, priority, from_attempt)
        object.__setattr__(self, "every", seconds(every, "every"))
        object.__setattr__(self, "attempts", _attempts(attempts))
        object.__setattr__(self, "jitter", _share(jitter))

    def delay(self, failures: int, uniform: Uniform) -> float:
        """Seconds until the next attempt."""
        return self.every * (1 + self.jitter * (2 * uniform() - 1))


@dataclass(frozen=True, init=False)
class Delays(Elsewhere):
    """A list of delays, one for each retry: `Delays("10s", "30s", "2m", "10m")` makes five attempts.

    Args:
        delays: one for each retry, in order.
        jitter: share of the delay, 0 to 1, by which it is drawn up or down.
        queue, priority, from_attempt: where the retries run, as for `Backoff`.
    """

    delays: tuple[float, ...]
    jitter: float

    def __init__(
        self, *delays: Duration, jitter: float = 0.2, queue: str | None = None, priority: int | None = None, from_attempt: int = 2
    ) -> None:
        self._says(queue, priority, from_attempt)
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


@dataclass(frozen=True, init=False)
class Retries:
    """A rule for each class of error: `Retries(Backoff(), throttled=Backoff("1m", attempts=20), status={503: Fixed("30s")})`.

    Args:
        rule: for all that is not named below, time limits included.
        throttled: for errors that say "too many requests".
        unknown: for errors that nothing is known about. Without it they follow `rule`, three attempts at most.
        status: for errors that carry this HTTP or SMTP status, 100 to 599.
        errors: for classes, or dotted names such as "httpx.ReadTimeout", and their subclasses; the nearest counts.

    Looked up in this order: `errors`, `status`, `throttled` or `unknown`, `rule`. An error that would go to the quarantine at
    once is tried again where `errors` or `status` name it.

    What counts: all failures of the job, whatever their class. After each failure their number is compared with the `attempts` of
    the rule that fits the last one, so a job has at most as many attempts as the largest rule allows; and one that has failed six
    times under a rule of twenty is over as soon as it fails under a rule of five.

    Raises:
        DeclarationError: a rule, a status or a name is none.
    """

    rule: RetryRule
    throttled: RetryRule | None
    unknown: RetryRule | None
    status: Mapping[int, RetryRule]
    errors: Mapping[str, RetryRule]

    def __init__(
        self,
        rule: RetryRule = DEFAULT,
        *,
        throttled: RetryRule | None = None,
        unknown: RetryRule | None = None,
        status: Mapping[int, RetryRule] | None = None,
        errors: Mapping[type[BaseException] | str, RetryRule] | None = None,
    ) -> None:
        for code in status or ():
            if isinstance(code, bool) or not isinstance(code, int) or not 100 <= code <= 599:
                raise DeclarationError(f"Retries: status={code!r} must be a whole number from 100 to 599")
        named = {_dotted(error): one for error, one in (errors or {}).items()}
        for where, one in (("rule", rule), *(status or {}).items(), *named.items()):
            _rule(one, where)
        for where, perhaps in (("throttled", throttled), ("unknown", unknown)):
            if perhaps is not None:
                _rule(perhaps, where)
        object.__setattr__(self, "rule", rule)
        object.__setattr__(self, "throttled", throttled)
        object.__setattr__(self, "unknown", unknown)
        object.__setattr__(self, "status", dict(status or {}))
        object.__setattr__(self, "errors", named)


def _rule(given: object, where: object) -> None:
    if not isinstance(given, Backoff | Fixed | Delays):
        raise DeclarationError(f"Retries: {where}: {given!r} must be Backoff(…), Fixed(…) or Delays(…)")


def _dotted(error: object) -> str:
    if isinstance(error, type) and issubclass(error, BaseException):
        return f"{error.__module__}.{error.__qualname__}"
    if isinstance(error, str) and _DOTTED.fullmatch(error):
        return error
    raise DeclarationError(f"Retries: errors={error!r} must be a class of errors, or its dotted name such as 'httpx.ReadTimeout'")


@dataclass(frozen=True, slots=True)
class Match:
    """The rule that fits an error.

    Attributes:
        own: given for just this class of errors, so that three attempts are no bound for unknown ones.
        again: given for this error or status by name, so that it is tried again whatever its kind.
    """

    rule: RetryRule
    own: bool = False
    again: bool = False


def queues_of(retry: RetryRule | Retries) -> list[str]:
    """The queues to which its rules send jobs."""
    if not isinstance(retry, Retries):
        return [] if retry.queue is None else [retry.queue]
    rules = (retry.rule, retry.throttled, retry.unknown, *retry.status.values(), *retry.errors.values())
    return [rule.queue for rule in rules if rule is not None and rule.queue is not None]


def matching(retry: RetryRule | Retries, verdict: Verdict, names: Iterable[str] = ()) -> Match:
    """The rule of a task that fits an error.

    Args:
        retry: the task's.
        verdict: what the error is.
        names: of its class and of those above it, the nearest first.
    """
    if not isinstance(retry, Retries):
        return Match(retry)
    for name in names:
        if name in retry.errors:
            return Match(retry.errors[name], own=True, again=True)
    if verdict.status is not None and verdict.status in retry.status:
        return Match(retry.status[verdict.status], own=True, again=True)
    if verdict.kind == "throttled" and retry.throttled is not None:
        return Match(retry.throttled, own=True)
    if verdict.kind == "unknown" and retry.unknown is not None:
        return Match(retry.unknown, own=True)
    return Match(retry.rule)


@dataclass(frozen=True, slots=True)
class Plan:
    """The next attempt: after `delay` seconds, with a note where the wish was not followed to the letter."""

    delay: float
    note: str | None = None


def next_attempt(
    rule: RetryRule,
    *,
    failures: int,
    kind: str,
    asked: float | None,
    remaining: float | None,
    uniform: Uniform,
    own: bool = False,
) -> Plan | Literal["exhausted", "deadline"]:
    """Decide about another attempt.

    Args:
        rule: the task's retry rule.
        failures: how often it has failed, this one included.
        kind: temporary, throttled, logical or unknown; unknown errors get at most three attempts.
        asked: seconds that the other side or the task asked to wait: a floor. Above a day it is cut to a day, with a note.
        remaining: seconds until the deadline; nothing is planned past it.
        uniform: draws from [0, 1).
        own: the rule was given for just this class of errors; then unknown ones get all its attempts.

    Returns:
        The plan, or why there is none.
    """
    attempts = min(rule.attempts, UNKNOWN_ATTEMPTS) if kind == "unknown" and not own else rule.attempts
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
        window = min(window, 60.0)
        if remaining is not None and floor < remaining:  # what fits is not lost to the spread
            delay = min(floor + min(window, remaining - floor) * uniform(), nextafter(remaining, 0.0))  # a sum may be rounded up
        else:
            delay = floor + window * uniform()
    if remaining is not None and delay >= remaining:
        return "deadline"
    return Plan(delay, note)

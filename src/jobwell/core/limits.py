"""Limits and rates: how they are written, and what the store needs to keep them."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Final, Literal

import orjson

from jobwell.core.duration import seconds, text
from jobwell.core.errors import DeclarationError

Kind = Literal["task", "queue", "resource", "tenant"]
Per = Literal["fleet", "host", "process", "tenant"]
KINDS: Final = ("task", "queue", "resource", "tenant")
PERS: Final = ("fleet", "host", "process", "tenant")
EVERYBODY: Final = "*"  # in place of a tenant's name: each that is not named
UNITS: Final = {
    "s": "1s",
    "sec": "1s",
    "second": "1s",
    "m": "1m",
    "min": "1m",
    "minute": "1m",
    "h": "1h",
    "hour": "1h",
    "d": "1d",
    "day": "1d",
}
# What a rate gives up so that no window ever holds more than it says: jobs may come early by SLACK of the window, to make up for
# claims that come late, and GUARD is for starts that are not as even as their claims. Together four per cent of the rate.
SLACK: Final = 0.015
GUARD: Final = 0.025
MOST: Final = 1_000_000
_RATE = re.compile(r"\s*([0-9][0-9_]*)\s*/\s*([0-9]*)\s*([a-z0-9]+)\s*")


@dataclass(frozen=True)
class Rate:
    """So many jobs in any window of so many seconds, started evenly.

    Args:
        count: jobs.
        seconds: of the window.
        burst: how many may start at once after a pause (default: about one and a half per cent of `count`). A larger burst makes
            the lasting rate smaller: `count - burst + 1` in a window, so that no window ever holds more than `count`.

    Raises:
        DeclarationError: a number is out of range.
    """

    count: int
    seconds: float
    burst: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or not 1 <= self.count <= MOST:
            raise DeclarationError(f"rate {self.count!r}: the number of jobs must be a whole number from 1 to {MOST:,}")
        if not _is(self.seconds, int | float) or not 0.1 <= self.seconds <= 31 * 86400:
            raise DeclarationError(f"rate over {self.seconds!r} seconds: the window must be from 0.1 s to 31 days long")
        if self.burst is not None and (not _is(self.burst, int) or not 1 <= self.burst <= self.count):
            raise DeclarationError(f"burst={self.burst!r} must be a whole number from 1 to the {self.count} of its rate")

    @property
    def every(self) -> float:
        """Seconds from one job to the next."""
        if self.burst is None:
            return self.seconds * (1 + SLACK + GUARD) / self.count
        return self.seconds * (1 + GUARD) / (self.count - self.burst + 1)

    @property
    def slack(self) -> float:
        """Seconds by which a job may come early."""
        return self.seconds * SLACK if self.burst is None else (self.burst - 1) * self.every

    def __str__(self) -> str:
        """As it is written: "10/s"."""
        unit = {1.0: "s", 60.0: "min", 3600.0: "h", 86400.0: "day"}.get(self.seconds, text(self.seconds))
        return f"{self.count}/{unit}" + (f" burst {self.burst}" if self.burst is not None else "")

    def stored(self) -> dict[str, Any]:
        """As the store keeps it."""
        return {"count": self.count, "seconds": self.seconds, "burst": self.burst, "every": self.every, "slack": self.slack}


def _is(value: object, kind: "type | UnionType") -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def rate(wanted: "str | Rate") -> Rate:
    """Read "10/s", "300/min", "1_000/h", "5/10s", "20/day".

    Raises:
        DeclarationError: it cannot be read; the sentence says how it is written.
    """
    if isinstance(wanted, Rate):
        return wanted
    found = _RATE.fullmatch(wanted.lower()) if isinstance(wanted, str) else None
    if found is None:
        raise DeclarationError(
            f"rate {wanted!r} cannot be read; write a number and a time, such as '10/s', '300/min', '1000/h', '5/10s'"
        )
    count, times, unit = found.groups()
    if unit not in UNITS:
        raise DeclarationError(f"rate {wanted!r}: {unit!r} is no time; use s, min, h or day")
    return Rate(int(count), seconds(UNITS[unit], "rate") * int(times or 1))


Rates = str | Rate | Iterable[str | Rate]


def rates(wanted: Rates | None) -> tuple[Rate, ...]:
    """One or several windows, all of which hold.

    Raises:
        DeclarationError: one cannot be read.
    """
    if wanted is None:
        return ()
    if isinstance(wanted, str | Rate):
        wanted = (wanted,)
    return tuple(dict.fromkeys(rate(one) for one in wanted))


@dataclass(frozen=True)
class Limit:
    """What may run at once, and how often something may start.

    Args:
        concurrency: jobs at once; 0 holds everything.
        rate: "10/s", or several windows ("10/s", "1000/h").
        per: what it is counted for: "fleet" (the default: all workers together), "host", "process", or "tenant" (each by itself).

    Guarantee: kept at the claim under a lock in the store: never more at once, and in no window more starts, whatever number of
    workers there are. A job that waits for it takes no slot, no connection and no attempt.

    Raises:
        DeclarationError: it limits nothing, or a value is out of range.
    """

    concurrency: int | None = None
    rate: Rates | None = None
    per: Per = "fleet"
    rates: tuple[Rate, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rates", rates(self.rate))
        if self.concurrency is None and not self.rates:
            raise DeclarationError("Limit() limits nothing; give concurrency=5, rate='10/s', or both")
        check_concurrency(self.concurrency)
        if self.per not in PERS:
            raise DeclarationError(f"per={self.per!r} must be one of {', '.join(map(repr, PERS))}")


def check_concurrency(value: int | None) -> None:
    """Refuse what is no number of jobs.

    Raises:
        DeclarationError: with what would be right.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST):
        raise DeclarationError(f"concurrency={value!r} must be a whole number from 0 to {MOST:,}")


def check_weight(value: float, who: str = "") -> float:
    """Refuse what is no weight.

    Raises:
        DeclarationError: with what would be right.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.001 <= value <= 1000:
        raise DeclarationError(f"{who}weight {value!r} must be a number from 0.001 to 1000")
    return float(value)


@dataclass(frozen=True)
class Declared:
    """A limit as code declares it: one row of the store.

    Attributes:
        name: of the task, queue, resource or tenant.
        weight: of a tenant.
    """

    kind: Kind
    name: str
    per: Per = "fleet"
    concurrency: int | None = None
    rates: tuple[Rate, ...] = ()
    weight: float | None = None

    def stored(self) -> dict[str, Any]:
        """As the store takes it."""
        return {
            "kind": self.kind, "name": self.name, "per": self.per, "concurrency": self.concurrency,
            "rates": [one.stored() for one in self.rates] or None, "weight": self.weight,
        }  # fmt: skip


def declared(kind: Kind, name: str, limits: "Iterable[Limit]") -> list[Declared]:
    """The rows of some limits on one thing.

    Raises:
        DeclarationError: two of them say something for the same.
    """
    rows: dict[Per, Declared] = {}
    for limit in limits:
        if limit.per in rows:
            raise DeclarationError(f"{kind} {name!r} has two limits per {limit.per}; put them into one")
        if kind == "tenant" and limit.per == "tenant":
            raise DeclarationError(f"tenant {name!r}: per='tenant' is what a tenant's limit is already; leave it out")
        rows[limit.per] = Declared(kind, name, limit.per, limit.concurrency, limit.rates)
    return list(rows.values())


def given(concurrency: int | None, rate: Rates | None, more: Iterable[Limit]) -> tuple[Limit, ...]:
    """The short form and the long one together.

    Raises:
        DeclarationError: a value is out of range.
    """
    short = () if concurrency is None and rate is None else (Limit(concurrency, rate),)
    found = tuple(more) if isinstance(more, Iterable) else (more,)
    if found and (isinstance(more, str) or not all(isinstance(one, Limit) for one in found)):
        raise DeclarationError(f"limits={more!r} must be a tuple of them, such as limits=(Limit(concurrency=2, per='tenant'),)")
    return (*short, *found)


@dataclass(frozen=True)
class Tier:
    """A class of tenants.

    Args:
        weight: its share beside others.
        concurrency: jobs of each such tenant at once.
        rate: starts of each such tenant.
    """

    weight: float = 1
    concurrency: int | None = None
    rate: Rates | None = None


def tenants(
    default: "float | Tier",
    weights: Mapping[str, float],
    tiers: Mapping[str, Tier],
    members: Mapping[str, str],
    limits: Mapping[str, Limit],
) -> list[Declared]:
    """The rows for tenants.

    Raises:
        DeclarationError: a weight is out of range, or a tier is not declared.
    """
    rows: dict[str, Declared] = {}
    for name, tier in members.items():
        if tier not in tiers:
            raise DeclarationError(
                f"tenant {name!r} is of the tier {tier!r}, which is not declared; there are {', '.join(tiers) or 'none'}"
            )
        rows[name] = _tenant(name, tiers[tier])
    for name, weight in weights.items():
        known = rows.get(name, Declared("tenant", name))
        rows[name] = Declared("tenant", name, "fleet", known.concurrency, known.rates, check_weight(weight, f"tenant {name!r}: "))
    for name, limit in limits.items():
        if limit.per != "fleet":
            raise DeclarationError(f"tenant {name!r}: per={limit.per!r} does not go here; a tenant is counted in the whole fleet")
        known = rows.get(name, Declared("tenant", name))
        rows[name] = Declared("tenant", name, "fleet", limit.concurrency, limit.rates, known.weight)
    everybody = _tenant(EVERYBODY, default if isinstance(default, Tier) else Tier(default))
    if everybody != Declared("tenant", EVERYBODY, weight=1.0):
        rows.setdefault(EVERYBODY, everybody)
    return list(rows.values())


def _tenant(name: str, tier: Tier) -> Declared:
    check_concurrency(tier.concurrency)
    return Declared("tenant", name, "fleet", tier.concurrency, rates(tier.rate), check_weight(tier.weight, f"tenant {name!r}: "))


def edition(rows: Iterable[Declared]) -> str:
    """Names a set of declarations: the same for every worker of the same code."""
    stored = sorted((row.stored() for row in rows), key=lambda row: (row["kind"], row["name"], row["per"]))
    return hashlib.blake2b(orjson.dumps(stored), digest_size=12).hexdigest()

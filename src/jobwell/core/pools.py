"""Pools: how the slots of one worker process are shared between queues, and when. As values, and as text.

    fast=critical,notifications:20                          20 slots; by priority across the two queues
    fast=critical>notifications:20                          strict: the first queue is empty before the second has its turn
    fast=critical*3,notifications*1:20                      weighted: three slots for one
    heavy=bulk:4..12                                        4 of its own, up to 12 with what others leave idle
    heavy=bulk:2;22:00-06:00=16..20;zone=Asia/Almaty        a time table
    fast=critical:20;least=15                               of its 20 slots 15 are never lent

Spaces around signs do not count; several pools in one text stand apart by spaces or line ends.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from jobwell.core.errors import SettingsError
from jobwell.core.shares import Share

Order = Literal["priority", "strict", "weighted"]
Slots = int | tuple[int, int]
MOST_SLOTS = 10_000
MOST_WEIGHT = 1000
EVERYTHING = "*"  # the queues that no other pool names
FORM = "name=queues:slots, such as fast=critical,notifications:20 or heavy=bulk:4..12"
DAY = 24 * 60
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,49}")
_QUEUE = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,199}|\*")
_SIGNS = re.compile(r"\s*(\.\.|[=:,;>*])\s*|(?<=\d)\s*(-)\s*(?=\d{1,2}:)")
_SLOTS = re.compile(r"(\d{1,6})(?:\.\.(\d{1,6}))?")
_SPAN = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_SEASONS = (date(2026, 1, 15), date(2026, 7, 15))  # a day on each side of any daylight saving


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """An entry of a time table: from one time of the day to another, over midnight where the end comes first.

    Attributes:
        begin, end: minutes of the day by the clock on the wall; the end does not belong to it.
        own, most: slots; `most` with borrowed ones.
    """

    begin: int
    end: int
    own: int
    most: int

    def holds(self, minute: int) -> bool:
        """Whether a minute of the day lies in it."""
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end

    def __str__(self) -> str:
        return f"{_clock(self.begin)}-{_clock(self.end)}={_range(self.own, self.most)}"


@dataclass(frozen=True, init=False)
class Pool:
    """Slots of a worker process for some queues.

    Args:
        name: for people.
        queues: names, by priority across them; or names with weights, `{"critical": 3, "notifications": 1}`: of many slots each
            queue has its share while it has jobs. A queue is in one pool only. "*" stands for all that no other pool names.
        slots: jobs at once in each process (a job of a task with `cost=4` takes four).
        most: with slots that other pools leave idle (default: no more than `slots`).
        least: so many of its slots are never lent to others (default: half of them, rounded up).
        strict: the first queue is empty before the next one has its turn; within a queue by priority.
        hours: a time table, `{"22:00-06:00": 16, "12:00-13:00": (4, 8)}`: slots, or slots and most, by the clock on the wall
            in `zone`; outside of it `slots` and `most` hold. 0 slots: nothing begins then.
        zone: an IANA name, such as "Asia/Almaty"; needed with `hours`.

    Raises:
        SettingsError: with what would be right.
    """

    name: str
    queues: tuple[str, ...]
    slots: int
    most: int
    least: int | None
    order: Order
    weights: tuple[int, ...]
    hours: tuple[Span, ...]
    zone: str

    def __init__(
        self,
        name: str,
        *,
        queues: Sequence[str] | Mapping[str, int],
        slots: int,
        most: int | None = None,
        least: int | None = None,
        strict: bool = False,
        hours: Mapping[str, Slots] | None = None,
        zone: str = "",
    ) -> None:
        who = f"pool {name!r}: "
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SettingsError(f"{who}its name has letters, digits, '_' and '-', at most 50; the form is {FORM}")
        weights = tuple(queues.values()) if isinstance(queues, Mapping) else ()
        order: Order = "strict" if strict else "weighted" if weights else "priority"
        names = (queues,) if isinstance(queues, str) else tuple(queues)
        _check_queues(names, weights, who)
        if strict and weights:
            raise SettingsError(f"{who}its queues are strict or weighted, not both")
        _check_slots(slots, slots if most is None else most, who)
        if least is not None and not (_whole(least) and 0 <= least <= slots):
            raise SettingsError(f"{who}least={least!r} must be from 0 to its {slots} slots")
        spans = _table(hours or {}, who)
        if spans and not zone:
            raise SettingsError(f"{who}a time table needs the zone that its clock shows, such as zone=Asia/Almaty")
        if zone:
            zone_of(zone, who)
        if not any((slots, *(span.own for span in spans))):
            raise SettingsError(f"{who}it never has a slot")
        for field, value in (
            ("name", name), ("queues", names), ("slots", slots), ("most", slots if most is None else most), ("least", least),
            ("order", order), ("weights", weights), ("hours", spans), ("zone", zone),
        ):  # fmt: skip
            object.__setattr__(self, field, value)

    def share(self, now: datetime) -> Share:
        """What it has at this moment.

        Args:
            now: with its zone.
        """
        own, most = self.slots, self.most
        if self.hours:
            there = now.astimezone(ZoneInfo(self.zone))
            minute = there.hour * 60 + there.minute
            own, most = next(((span.own, span.most) for span in self.hours if span.holds(minute)), (own, most))
        return Share(own, (own + 1) // 2 if self.least is None else min(self.least, own), most)

    @property
    def largest(self) -> int:
        """The most slots of its own that it has at any time of the day."""
        return max(self.slots, *(span.own for span in self.hours), 0)

    @property
    def highest(self) -> int:
        """The same with borrowed ones."""
        return max(self.most, *(span.most for span in self.hours), 0)

    def __str__(self) -> str:
        names: Iterable[str] = self.queues
        if self.order == "weighted":
            names = (f"{queue}*{weight}" for queue, weight in zip(self.queues, self.weights, strict=True))
        text = f"{self.name}={('>' if self.order == 'strict' else ',').join(names)}:{_range(self.slots, self.most)}"
        more = [*map(str, self.hours), *([f"least={self.least}"] if self.least is not None else [])]
        return ";".join([text, *more, *([f"zone={self.zone}"] if self.zone else [])])


def parse(text: str) -> tuple[Pool, ...]:
    """Pools as text, as they stand on a command line or in a file.

    Raises:
        SettingsError: it cannot be read, with the form that can.
    """
    plain = text.replace("–", "-").replace("→", "=")
    return tuple(_one(part) for part in _SIGNS.sub(r"\1\2", plain).split())


def read(value: Any) -> tuple[Pool, ...]:
    """Pools as a setting has them: text, a list of texts or of `Pool`, or a table of texts by name.

    Raises:
        SettingsError: with what would be right.
    """
    if isinstance(value, Mapping):
        value = [f"{name}={rest}" for name, rest in value.items()]
    pools: list[Pool] = []
    for each in (value,) if isinstance(value, str | Pool) else value if isinstance(value, list | tuple) else (value,):
        if isinstance(each, Pool):
            pools.append(each)
        elif isinstance(each, str):
            pools += parse(each)
        else:
            raise SettingsError(f"pools={each!r}: a pool is Pool(…), or text: {FORM}")
    check(pools)
    return tuple(pools)


def check(pools: Sequence[Pool]) -> None:
    """Hold pools against each other.

    Raises:
        SettingsError: a name or a queue stands twice.
    """
    places: dict[str, str] = {}
    for pool in pools:
        if [each.name for each in pools].count(pool.name) > 1:
            raise SettingsError(f"two pools have the name {pool.name!r}")
        for queue in pool.queues:
            if queue in places:
                raise SettingsError(f"the queue {queue!r} is in the pools {places[queue]!r} and {pool.name!r}; it can be in one")
            places[queue] = pool.name


def queues_of(pools: Sequence[Pool], declared: Sequence[str]) -> list[tuple[str, ...]]:
    """The queues of each pool, with "*" told out.

    Raises:
        SettingsError: "*" stands for nothing.
    """
    named = {queue for pool in pools for queue in pool.queues}
    rest = tuple(queue for queue in declared if queue not in named)
    found = []
    for pool in pools:
        if EVERYTHING in pool.queues and not rest:
            raise SettingsError(f"pool {pool.name!r}: '*' stands for no queue; other pools name all that are declared")
        found.append(tuple(one for queue in pool.queues for one in (rest if queue == EVERYTHING else (queue,))))
    return found


def peak(pools: Sequence[Pool]) -> int:
    """The most slots that all have together at any time of the day."""
    edges = {
        datetime.combine(day, time(minute // 60 % 24, minute % 60), ZoneInfo(pool.zone)).astimezone(UTC)
        for day in _SEASONS for pool in pools for span in pool.hours for minute in (span.begin, span.end)
    }  # fmt: skip
    edges |= {datetime.combine(_SEASONS[0], time(), UTC)}
    # Also of the days around them: the day of one zone is not that of another.
    moments = (edge + timedelta(days=days) for edge in edges for days in (-1, 0, 1))
    return max(sum(pool.share(moment).own for pool in pools) for moment in moments)


def zone_of(name: str, who: str = "") -> ZoneInfo:
    """A zone by its name.

    Raises:
        SettingsError: there is none.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not found, no name of a zone, a folder of them
        raise SettingsError(f"{who}there is no zone {name!r}; it is a name such as Asia/Almaty or UTC") from None


def _one(text: str) -> Pool:
    head, *parts = text.split(";")
    name, is_there, rest = head.partition("=")
    queues_text, colon, slots_text = rest.rpartition(":")
    if not (is_there and colon):
        raise SettingsError(f"pool {text!r} cannot be read; the form is {FORM}")
    who = f"pool {name!r}: "
    slots, most = _read_slots(slots_text, who)
    options: dict[str, str] = {}
    hours: dict[str, Slots] = {}
    for part in filter(None, parts):
        key, _, value = part.partition("=")
        if key in ("zone", "least"):
            options[key] = value
        elif _SPAN.fullmatch(key):
            hours[key] = _read_slots(value, who)
        else:
            raise SettingsError(f"{who}{part!r} is neither a time table (22:00-06:00=16) nor zone= nor least=")
    least = options.get("least")
    if least is not None and not least.isdecimal():
        raise SettingsError(f"{who}least={least!r} is not a whole number")
    return Pool(
        name, queues=_read_queues(queues_text, who), strict=">" in queues_text, slots=slots, most=most,
        least=None if least is None else int(least), hours=hours, zone=options.get("zone", ""),
    )  # fmt: skip


def _read_queues(text: str, who: str) -> Sequence[str] | Mapping[str, int]:
    if ">" in text and "," in text:
        raise SettingsError(f"{who}{text!r}: queues stand apart by ',' (by priority across them) or by '>' (strict), not both")
    names = re.split("[,>]", text)
    if not any("*" in name[1:] for name in names):
        return names
    found: dict[str, int] = {}
    for name in names:
        queue, _, weight = name.rpartition("*")
        if not queue or not weight.isdecimal() or queue in found:
            raise SettingsError(f"{who}{name!r}: where one queue has a weight, each has one: critical*3,notifications*1")
        found[queue] = int(weight)
    return found


def _read_slots(text: str, who: str) -> tuple[int, int]:
    found = _SLOTS.fullmatch(text)
    if found is None:
        raise SettingsError(f"{who}{text!r} are no slots; write 4, or 4..12 for 4 of its own and up to 12 with borrowed ones")
    return int(found[1]), int(found[2] or found[1])


def _table(hours: Mapping[str, Slots], who: str) -> tuple[Span, ...]:
    spans: list[Span] = []
    for key, slots in hours.items():
        found = _SPAN.fullmatch(key.replace("–", "-").replace(" ", ""))
        if found is None:
            raise SettingsError(f"{who}{key!r} is no span of the day; write it as 22:00-06:00")
        begin, end = (int(found[at]) * 60 + int(found[at + 1]) for at in (1, 3))
        if begin >= DAY or end > DAY or int(found[2]) > 59 or int(found[4]) > 59 or begin == end:
            raise SettingsError(f"{who}{key!r} is no span of the day; it goes from 00:00 to 24:00 at the most")
        own, most = slots if isinstance(slots, tuple) else (slots, slots)
        _check_slots(own, most, f"{who}{key}: ")
        spans.append(Span(begin, end % DAY if end != DAY or begin else DAY, own, most))
    for minute in range(DAY):
        if sum(span.holds(minute) for span in spans) > 1:
            raise SettingsError(f"{who}at {_clock(minute)} two entries of its time table hold")
    return tuple(sorted(spans))


def _check_queues(names: tuple[str, ...], weights: tuple[int, ...], who: str) -> None:
    if not names or len(set(names)) != len(names) or not all(isinstance(name, str) and _QUEUE.fullmatch(name) for name in names):
        raise SettingsError(f"{who}{', '.join(map(str, names))!r} are not the names of queues, each once; the form is {FORM}")
    if not all(_whole(weight) and 1 <= weight <= MOST_WEIGHT for weight in weights):
        raise SettingsError(f"{who}a weight is a whole number from 1 to {MOST_WEIGHT}")
    if EVERYTHING in names and weights:
        raise SettingsError(f"{who}'*' stands for several queues, and a weight belongs to one; name them")


def _check_slots(own: int, most: int, who: str) -> None:
    if not (_whole(own) and _whole(most) and 0 <= own <= most <= MOST_SLOTS):
        raise SettingsError(
            f"{who}slots={own!r}, most={most!r}: whole numbers from 0 to {MOST_SLOTS:,}, and most no fewer than slots"
        )


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _range(own: int, most: int) -> str:
    return str(own) if own == most else f"{own}..{most}"


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"

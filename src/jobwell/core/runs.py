"""Runs: what a card says, and what it is computed from. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import orjson

from jobwell.core.errors import InvalidArguments

State = Literal["queued", "running", "paused", "completed", "completed_with_errors", "cancelled"]
Delivery = Literal["accepted", "delivered", "bounced"]
ENDED: Final = ("completed", "completed_with_errors", "cancelled")
SPEED_FADES: Final = 15.0  # seconds without an item, after which the last speed is no speed any more


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCard:
    """One stage on a card.

    Attributes:
        name: of its function.
        after: the stage before it; None: it begins with the items.
        total: items that are meant for it: those of the run without those that an earlier stage has failed, skipped or lost to a
            cancel; None while that is not known.
        done, failed, skipped, cancelled: items that have come to an end in it.
        open: items that have not: `running` of them are in the hands of running jobs, the others wait.
        accepted, delivered, bounced: what was told of sent items later.
        percent: of `total` that has come to an end; None while that is not known.
        speed: items in a second lately; None: not known yet.
        remaining: seconds to its end at that speed; None: not known.
        ended: whether nothing is open and nothing will come, but for a retry.
    """

    name: str
    after: str | None
    total: int | None
    done: int
    failed: int
    skipped: int
    cancelled: int
    open: int
    running: int
    accepted: int
    delivered: int
    bounced: int
    percent: float | None
    speed: float | None
    remaining: float | None
    ended: bool

    @property
    def processed(self) -> int:
        """Items that have come to an end."""
        return self.done + self.failed + self.skipped + self.cancelled


@dataclass(frozen=True, slots=True)
class PartCard:
    """A preparation or a finish on a card.

    Attributes:
        name: of its function.
        kind: "prepare" or "finish".
        state: waiting, enqueued, done or failed.
        message: why it failed.
    """

    name: str
    kind: str
    state: str
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a business user sees of a run: made from the states of its items, all of one moment.

    Attributes:
        status: queued, running, paused, completed, completed_with_errors or cancelled.
        sealed: whether all items are in; until then totals grow.
        total: items; `expected` is what the start was told, if it was.
        duplicates: items left out, as their key was there before.
        bad_rows: rows that do not fit the model.
        stages, parts: its stages, in order; its preparation and finishes.
        percent: over all stages, each weighing the same; None while the total is not known.
        errors: failures of items, over all stages.
        speed, remaining: of the stage that will take longest.
        ends_at: when it will end at that speed.
        canary: whether the rest of the items waits behind one.
        by, why: who changed the state last, and the reason.
    """

    id: UUID
    operation: str
    key: str | None
    status: State
    sealed: bool
    total: int
    expected: int | None
    duplicates: int
    bad_rows: int
    stages: tuple[StageCard, ...]
    parts: tuple[PartCard, ...]
    percent: float | None
    errors: int
    speed: float | None
    remaining: float | None
    ends_at: datetime | None
    canary: bool
    started_by: str
    by: str
    why: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def over(self) -> bool:
        """Whether it has come to an end; a retry of failed items opens it again."""
        return self.status in ENDED

    def __getitem__(self, stage: str) -> StageCard:
        """A stage by its name."""
        return next(one for one in self.stages if one.name == stage)


@dataclass(frozen=True, slots=True)
class Counts:
    """The counters of one stage as they are stored, with what its speed is measured from."""

    stage: int
    name: str
    after: int | None
    state: str
    done: int
    failed: int
    skipped: int
    cancelled: int
    accepted: int = 0
    delivered: int = 0
    bounced: int = 0
    running: int = 0
    mark_at: datetime | None = None
    mark: int = 0
    speed: float | None = None

    @property
    def ended(self) -> int:
        """Items that have come to an end."""
        return self.done + self.failed + self.skipped + self.cancelled


def stage_cards(counts: Sequence[Counts], *, items: int, known: bool, now: datetime) -> tuple[StageCard, ...]:
    """The stages of a card.

    Args:
        counts: in order: a stage stands behind the one that it comes after.
        items: of the run.
        known: whether no more come.
        now: the time that the counts are of.
    """
    cards: list[StageCard] = []
    of = {one.stage: one for one in counts}
    totals: dict[int, int] = {}
    for one in counts:
        before = of.get(one.after) if one.after is not None else None
        total = items if before is None else totals[before.stage] - (before.failed + before.skipped + before.cancelled)
        totals[one.stage] = total
        rest = total - one.ended
        rate = speed(one, now)
        cards.append(
            StageCard(
                name=one.name,
                after=before.name if before is not None else None,
                total=total if known else None,
                done=one.done,
                failed=one.failed,
                skipped=one.skipped,
                cancelled=one.cancelled,
                open=rest,
                running=min(one.running, max(rest, 0)),
                accepted=one.accepted,
                delivered=one.delivered,
                bounced=one.bounced,
                percent=percent(one.ended, total) if known else None,
                speed=rate,
                remaining=0.0 if known and rest <= 0 else rest / rate if known and rate else None,
                ended=one.state == "ended",
            )
        )
    return tuple(cards)


def percent(ended: int, total: int) -> float:
    """Of a total; never 100 before the end, and never above."""
    if total <= 0 or ended >= total:
        return 100.0
    return min(int(ended * 1000 / total) / 10, 99.9)


def speed(one: Counts, now: datetime) -> float | None:
    """Items in a second lately: what was measured, and what has come since; fading where nothing comes."""
    if one.mark_at is None:
        return None
    passed = (now - one.mark_at).total_seconds()
    since = one.ended - one.mark
    if passed < 1.0:
        return one.speed
    if since <= 0:
        return one.speed if one.speed is not None and passed < SPEED_FADES else None
    fresh = since / passed
    return fresh if one.speed is None else (fresh + one.speed) / 2


def whole_percent(stages: Sequence[StageCard]) -> float | None:
    """Over all stages, each weighing the same."""
    shares = [one.percent for one in stages]
    known = [share for share in shares if share is not None]
    if not known or len(known) < len(shares):
        return None
    found = sum(known) / len(known)
    return 100.0 if found >= 100.0 else min(int(found * 10) / 10, 99.9)


def slowest(stages: Sequence[StageCard]) -> StageCard | None:
    """The stage that will take longest; None: of one that is not over it is not known."""
    going = [one for one in stages if one.remaining != 0.0]
    if not going or any(one.remaining is None for one in going):
        return None
    return max(going, key=lambda one: one.remaining or 0.0)


@dataclass(frozen=True, slots=True)
class Canary:
    """What is let go first.

    Attributes:
        count: the first so many items.
        share: the first so large a part of them.
        only: those that have these values.
    """

    count: int | None = None
    share: float | None = None
    only: Mapping[str, Any] = field(default_factory=dict)

    def stored(self) -> dict[str, Any]:
        """As the store has it."""
        if self.only:
            return {"only": dict(self.only)}
        return {"share": self.share} if self.share is not None else {"count": self.count}


def canary_of(given: float | None, only: Mapping[str, Any] | None) -> Canary | None:
    """Read `canary=` and `only=`.

    Raises:
        InvalidArguments: it is neither a count from 1 nor a share between 0 and 1; or both are given.
    """
    if given is not None and only:
        raise InvalidArguments("canary and only: give one of them; nothing was started", "canary")
    if only:
        try:
            stored = orjson.dumps(dict(only))
        except TypeError as error:
            raise InvalidArguments(f"only={only!r} must be JSON values ({error}); nothing was started", "only") from None
        if b"\\u0000" in stored:
            raise InvalidArguments(f"only={only!r} holds a NUL character, which cannot be stored; nothing was started", "only")
        return Canary(only=dict(only))
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or given <= 0 or (isinstance(given, float) and given >= 1):
        raise InvalidArguments(
            f"canary={given!r} must be a number of items (20) or a share of them (0.05); nothing was started", "canary"
        )
    return Canary(count=given) if isinstance(given, int) else Canary(share=given)


@dataclass(frozen=True, slots=True)
class ItemError:
    """An item that has failed in a stage.

    Attributes:
        stage: its name.
        no, key: which item.
        code, message: why.
        attempt: how often it was tried in this stage.
        at: when.
        data: the item as it is stored.
        place: what `errors(after=…)` takes to go on behind it.
    """

    stage: str
    no: int
    key: str
    code: str | None
    message: str | None
    attempt: int
    at: datetime
    data: Any
    place: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pace:
    """When items came to an end, in slices of equal length.

    Attributes:
        since, until: the whole of the slices.
        ended: by stage, how many in each slice, failed ones included.
        failed: of these, over all stages.
    """

    since: datetime
    until: datetime
    ended: Mapping[str, tuple[int, ...]]
    failed: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """Of one slice."""
        return (self.until - self.since).total_seconds() / max(len(self.failed), 1)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that does not fit the item's model.

    Attributes:
        row: its number in the input, from 1; with a header line in front, as a spreadsheet shows it.
        field: which one; empty: the row as a whole.
        reason: what is wrong.
        value: what stands there, cut.
    """

    row: int
    field: str
    reason: str
    value: str | None


def spans(numbers: Sequence[int]) -> list[list[int]]:
    """Sorted numbers as [first, last] pairs."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found

"""Reports that are sent by themselves: what a subscription says, when it is due, and what its next report is on. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

from jobwell.core.duration import text
from jobwell.core.errors import InvalidArguments
from jobwell.core.report import Wanted

Kind = Literal["daily", "threshold", "test"]
FORMS: Final = ("csv", "xlsx", "html", "json")
MARGIN: Final = timedelta(seconds=15)  # what fails at this moment may be committed a little later
SHORTEST_LOOK: Final = 30.0  # seconds between two looks at a threshold: a sixtieth of its time, within these bounds
LONGEST_LOOK: Final = 600.0
DAY: Final = timedelta(days=1)
FIRST_PAUSE: Final = 30.0  # seconds after a try that did not go through; doubled with each
LONGEST_PAUSE: Final = 3600.0
SHORTEST_WITHIN: Final = 60.0
LONGEST_WITHIN: Final = 31 * 86400.0
MOST_RECIPIENTS: Final = 50
LONGEST_RECIPIENT: Final = 254
# One address in ASCII, without a name and without quotes: nothing that a header or a command of SMTP could take for more.
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,187}[A-Za-z0-9])?")
_FOR_A_HOOK = re.compile(r"[\w.:/#+-]+")


@dataclass(frozen=True, slots=True)
class Period:
    """What a report is on.

    Attributes:
        kind: daily, threshold or test.
        since: the failures after this moment, `until` this one.
    """

    kind: Kind
    since: datetime
    until: datetime


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """A report that is sent by itself, and how far it is.

    Attributes:
        wanted: which failed jobs, and by what they are grouped.
        form: of what is attached.
        recipients: addresses of mail; what has no @ is for a hook.
        even_empty: a daily one is sent also where nothing has failed.
        daily: the time of the day in `zone`; None: none.
        threshold: so many new failures `within` so many seconds; None: no such.
        daily_since: where the next daily one begins.
        told_until: what failed until then does not count towards the threshold.
        alarmed_at: the last one for the threshold.
        pending: the one that is being sent, or could not be sent so far; `done`: recipients that have it.
        now: the database's time when this was read.
    """

    id: int
    wanted: Wanted
    form: str
    recipients: tuple[str, ...]
    even_empty: bool
    daily: time | None
    zone: str
    threshold: int | None
    within: float | None
    made_at: datetime
    made_by: str
    why: str | None
    paused_at: datetime | None
    paused_by: str | None
    daily_since: datetime
    told_until: datetime
    alarmed_at: datetime | None
    next_daily: datetime | None
    look_at: datetime
    pending: Period | None
    done: tuple[str, ...]
    failures: int
    last_error: str | None
    last_error_at: datetime | None
    last_sent: datetime | None
    test_asked: datetime | None
    test_by: str | None
    now: datetime

    @property
    def until(self) -> datetime:
        """Where a report ends that is made now."""
        return self.now - MARGIN

    @property
    def state(self) -> str:
        """In a word: "paused", "failing", "overdue" (nobody who can send has looked), or "on"."""
        if self.paused_at is not None:
            return "paused"
        if self.now - self.look_at > timedelta(minutes=5):
            return "overdue"
        return "failing" if self.failures else "on"

    def window(self) -> tuple[datetime, datetime] | None:
        """The time whose failures count towards the threshold; None: there is no threshold, or it was told of lately."""
        if self.threshold is None or self.within is None:
            return None
        within = timedelta(seconds=self.within)
        if self.alarmed_at is not None and self.now < self.alarmed_at + within:
            return None
        since = max(self.told_until, self.until - within)
        return (since, self.until) if since < self.until else None

    def due(self, new: int) -> Period | None:
        """What is to be sent now.

        Args:
            new: the failures in `window()`.
        """
        if self.next_daily is not None and self.now >= self.next_daily:
            return Period("daily", self.daily_since, max(self.daily_since, self.until))
        window = self.window()
        if window is not None and self.threshold is not None and new >= self.threshold:
            return Period("threshold", *window)
        return None

    def marks(self, period: Period | None) -> dict[str, datetime | None]:
        """How far it is after this report, sent or found empty; None: nothing was due. With the moment of the next look."""
        daily_since, told_until, alarmed_at, next_daily = self.daily_since, self.told_until, self.alarmed_at, self.next_daily
        if period is not None:
            told_until = max(told_until, period.until)
            if period.kind != "daily":
                alarmed_at = self.now
            elif self.daily is not None:
                daily_since = period.until
                # After one that was tried for days the next is due at once: it has what has come meanwhile.
                next_daily = next_at(period.until + MARGIN, self.daily, self.zone)
        looks = [] if next_daily is None else [next_daily]
        if self.threshold is not None and self.within is not None:
            quiet_until = self.now if alarmed_at is None else alarmed_at + timedelta(seconds=self.within)
            look = min(LONGEST_LOOK, max(SHORTEST_LOOK, self.within / 60))
            looks.append(max(self.now + timedelta(seconds=look), quiet_until))
        return {
            "daily_since": daily_since, "told_until": told_until, "alarmed_at": alarmed_at, "next_daily": next_daily,
            "look_at": min(looks),
        }  # fmt: skip

    def test(self) -> Period:
        """What a test is on: the last day."""
        return Period("test", self.now - DAY, self.now)

    def when(self) -> str:
        """For people: "daily at 08:00 Asia/Almaty, and at 50 failures within 1h"."""
        told = [] if self.daily is None else [f"daily at {self.daily:%H:%M} {self.zone}"]
        if self.threshold is not None and self.within is not None:
            told.append(f"at {self.threshold:,} failure{'s' if self.threshold > 1 else ''} within {text(self.within)}")
        return ", and ".join(told)

    def what(self) -> str:
        """For people: "owner hr-it, queue mail"."""
        return described(self.wanted)


def described(wanted: Wanted) -> str:
    """Which failed jobs, for people."""
    given = [f"{name} {value or '(none)'}" for name, value in wanted.given().items()]
    return ", ".join(given) or "all failed jobs"


def next_at(after: datetime, at: time, zone: str) -> datetime:
    """The next moment at which it is this time of the day there, in UTC.

    A time that does not exist on a day (the clocks go forward) counts as the first moment after the gap; one that exists twice
    counts once, the first time.
    """
    place = ZoneInfo(zone)
    day = after.astimezone(place).date()
    while (found := _moment(day, at, place)) <= after:
        day += DAY
    return found


def _moment(day: date, at: time, zone: ZoneInfo) -> datetime:
    naive = datetime.combine(day, at)
    early, late = (naive.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if early <= late:  # it exists, once or twice
        return early
    # In a gap `early` is reckoned by the clock before it, and so lies behind it; `late` the other way round.
    before, behind = late, early
    offset = behind.astimezone(zone).utcoffset()
    while behind - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(behind - before) // timedelta(seconds=2))
        if middle.astimezone(zone).utcoffset() == offset:
            behind = middle
        else:
            before = middle
    return behind


def pause_after(failures: int) -> float:
    """Seconds until the next try, after so many in a row that did not go through."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 10))


def check(
    *, recipients: Sequence[str], form: str, daily: time | None, zone: str, threshold: int | None, within: float | None
) -> None:
    """Refuse a subscription that cannot work.

    Raises:
        InvalidArguments: nothing was done.
    """
    if not recipients or len(recipients) > MOST_RECIPIENTS:
        raise InvalidArguments(f"give at least one recipient, and at most {MOST_RECIPIENTS}", "to")
    for recipient in recipients:
        check_recipient(recipient)
    if form not in FORMS:
        raise InvalidArguments(f"form={form!r} is not known; there are {', '.join(FORMS)}", "form")
    if daily is None and threshold is None:
        raise InvalidArguments("say when: daily at a time of the day, at a threshold, or both", "daily")
    if daily is not None and (daily.tzinfo is not None or daily.second or daily.microsecond):
        raise InvalidArguments(f"daily={daily} must be hours and minutes in the zone, such as 08:00", "daily")
    if (threshold is None) != (within is None):
        raise InvalidArguments("a threshold is so many failures within a time: give both", "threshold")
    if threshold is not None and within is not None:
        if not 1 <= threshold <= 1_000_000:
            raise InvalidArguments(f"threshold={threshold} must be from 1 to 1000000", "threshold")
        if not SHORTEST_WITHIN <= within <= LONGEST_WITHIN:
            raise InvalidArguments(
                f"within={text(within)} must be from {text(SHORTEST_WITHIN)} to {text(LONGEST_WITHIN)}", "within"
            )
    check_zone(zone)


def check_recipient(recipient: str) -> None:
    """Refuse what is neither one plain address nor a name for a hook.

    Raises:
        InvalidArguments: with what is right.
    """
    fitting = _ADDRESS if "@" in recipient else _FOR_A_HOOK
    if len(recipient) > LONGEST_RECIPIENT or not fitting.fullmatch(recipient):
        raise InvalidArguments(
            f"{recipient!r} is no recipient; give one address in ASCII without a name (ann@example.org), or what your hook"
            " understands, without spaces (slack:ops)", "to",
        )  # fmt: skip


def check_zone(zone: str) -> None:
    """Refuse what is no time zone.

    Raises:
        InvalidArguments: with the form.
    """
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, LookupError):
        raise InvalidArguments(f"{zone!r} is no time zone; write it like Asia/Almaty or UTC", "zone") from None


def read_filters(stored: Mapping[str, Any], group_by: str) -> Wanted:
    """Which jobs, as it is stored.

    Raises:
        InvalidArguments: a newer release has written a filter that this one does not know; without it others' jobs would be told.
    """
    unknown = set(stored) - set(Wanted().filters())
    if unknown:
        raise InvalidArguments(f"a newer release has made this subscription: {', '.join(sorted(unknown))} is not known here")
    return Wanted(group_by=group_by, **{name: str(value) for name, value in stored.items()})

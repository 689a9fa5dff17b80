"""When a subscription is due: daily over clocks that go forward and back, at thresholds, and after tries that did not go through."""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell.core.errors import InvalidArguments
from jobwell.core.report import Wanted
from jobwell.core.subscription import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MARGIN,
    Period,
    Subscription,
    check,
    next_at,
    pause_after,
    read_filters,
)

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def sub(**given: object) -> Subscription:
    usual = {
        "id": 1, "wanted": Wanted(), "form": "csv", "recipients": ("a@b.example",), "even_empty": False, "daily": None, "zone": "UTC", "threshold": None,
        "within": None, "made_at": NOW - DAY, "made_by": "olga", "why": None, "paused_at": None, "paused_by": None, "daily_since": NOW - DAY,
        "told_until": NOW - DAY, "alarmed_at": None, "next_daily": None, "look_at": NOW, "pending": None, "done": (), "failures": 0,
        "last_error": None, "last_error_at": None, "last_sent": None, "test_asked": None, "test_by": None, "now": NOW,
    }  # fmt: skip
    return Subscription(**usual | given)  # type: ignore[arg-type]  # a table of cases has all types in it


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("after", "at", "zone", "expected"),
    [
        ("2030-01-31T12:00", time(8), "UTC", "2030-02-01T08:00"),
        ("2030-01-31T07:59:59", time(8), "UTC", "2030-01-31T08:00"),
        ("2030-01-31T08:00", time(8), "UTC", "2030-02-01T08:00"),
        ("2030-01-31T12:00", time(8), "Asia/Almaty", "2030-02-01T03:00"),
        # The clocks go forward at 2:00 to 3:00: half past two is at three.
        ("2027-03-27T12:00", time(2, 30), "Europe/Berlin", "2027-03-28T01:00"),
        ("2027-03-28T01:00", time(2, 30), "Europe/Berlin", "2027-03-29T00:30"),
        ("2027-03-27T12:00", time(3), "Europe/Berlin", "2027-03-28T01:00"),
        # They go back at 3:00 to 2:00: half past two is twice, and counts the first time.
        ("2027-10-30T12:00", time(2, 30), "Europe/Berlin", "2027-10-31T00:30"),
        ("2027-10-31T00:30", time(2, 30), "Europe/Berlin", "2027-11-01T01:30"),
        ("2027-10-31T01:00", time(2, 30), "Europe/Berlin", "2027-11-01T01:30"),
        # Midnight that does not exist, half an hour of difference, and a day that was left out.
        ("2018-11-03T12:00", time(0), "America/Sao_Paulo", "2018-11-04T03:00"),
        ("2027-10-02T12:00", time(2, 15), "Australia/Lord_Howe", "2027-10-02T15:30"),
        ("2011-12-29T20:00", time(8), "Pacific/Apia", "2011-12-30T10:00"),
    ],
)
def test_the_next_time_of_the_day(after: str, at: time, zone: str, expected: str) -> None:
    assert next_at(utc(after), at, zone) == utc(expected)


ZONES = [
    "UTC",
    "Asia/Almaty",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Kolkata",
    "Africa/Casablanca",
]


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2050, 1, 1)).map(lambda when: when.replace(tzinfo=UTC)),
    st.times().map(lambda at: at.replace(second=0, microsecond=0)), st.sampled_from(ZONES),
)  # fmt: skip
def test_it_comes_once_a_day_and_never_drifts(after: datetime, at: time, zone: str) -> None:
    place = ZoneInfo(zone)
    days = []
    for _ in range(4):
        found = next_at(after, at, zone)
        assert timedelta() < found - after <= timedelta(hours=26)
        local = found.astimezone(place)
        if local.time() != at:  # then it does not exist on that day, and this is the first moment behind the gap
            naive = datetime.combine(local.date(), at).replace(tzinfo=place)
            assert naive.astimezone(UTC).astimezone(place).time() != at
            assert (found - timedelta(seconds=1)).astimezone(place).utcoffset() != local.utcoffset()
        days.append(local.date())
        after = found
    assert [day - days[0] for day in days] == [timedelta(days=n) for n in range(4)]


@pytest.mark.parametrize(
    ("given", "new", "expected"),
    [
        ({"daily": time(8), "next_daily": NOW}, 0, Period("daily", NOW - DAY, NOW - MARGIN)),
        ({"daily": time(8), "next_daily": NOW + HOUR}, 0, None),
        ({"daily": time(8), "next_daily": NOW, "daily_since": NOW - timedelta(seconds=3)}, 0,
         Period("daily", NOW - timedelta(seconds=3), NOW - timedelta(seconds=3))),
        ({"threshold": 5, "within": 3600.0}, 4, None),
        ({"threshold": 5, "within": 3600.0}, 5, Period("threshold", NOW - MARGIN - HOUR, NOW - MARGIN)),
        ({"threshold": 5, "within": 3600.0, "told_until": NOW - timedelta(minutes=9)}, 5, Period("threshold", NOW - timedelta(minutes=9), NOW - MARGIN)),
        ({"threshold": 5, "within": 3600.0, "told_until": NOW}, 9, None),
        ({"threshold": 5, "within": 3600.0, "alarmed_at": NOW - timedelta(minutes=59)}, 9, None),
        ({"threshold": 5, "within": 3600.0, "alarmed_at": NOW - HOUR}, 9, Period("threshold", NOW - MARGIN - HOUR, NOW - MARGIN)),
        ({"threshold": 5, "within": 3600.0, "daily": time(8), "next_daily": NOW}, 9, Period("daily", NOW - DAY, NOW - MARGIN)),
    ],
)  # fmt: skip
def test_what_is_due(given: dict[str, object], new: int, expected: Period | None) -> None:
    assert sub(**given).due(new) == expected


def test_after_a_report_the_next_begins_where_it_ended() -> None:
    both = sub(threshold=5, within=3600.0, daily=time(8), next_daily=NOW)
    marks = both.marks(Period("daily", NOW - DAY, NOW - MARGIN))
    assert marks == {
        "daily_since": NOW - MARGIN, "told_until": NOW - MARGIN, "alarmed_at": None, "next_daily": utc("2030-02-01T08:00"),
        "look_at": NOW + timedelta(minutes=1),
    }  # fmt: skip
    marks = both.marks(Period("threshold", NOW - HOUR, NOW - MARGIN))
    assert (marks["daily_since"], marks["told_until"], marks["alarmed_at"], marks["next_daily"]) == (
        NOW - DAY,
        NOW - MARGIN,
        NOW,
        NOW,
    )
    quiet = sub(threshold=5, within=3600.0).marks(Period("threshold", NOW - HOUR, NOW - MARGIN))
    assert quiet["look_at"] == NOW + HOUR
    for within, look in ((60.0, 30), (3600.0, 60), (86400.0, 600)):
        assert sub(threshold=5, within=within).marks(None)["look_at"] == NOW + timedelta(seconds=look)


def test_after_one_that_was_tried_for_days_the_rest_is_due_at_once() -> None:
    late = sub(daily=time(8), next_daily=NOW - 3 * DAY - 4 * HOUR)
    marks = late.marks(Period("daily", NOW - 4 * DAY, NOW - 3 * DAY - 4 * HOUR - MARGIN))
    assert marks["look_at"] == marks["next_daily"] == utc("2030-01-29T08:00")
    assert replace(late, **marks).due(0) == Period("daily", NOW - 3 * DAY - 4 * HOUR - MARGIN, NOW - MARGIN)  # type: ignore[arg-type]  # marks are some of its fields


@given(st.integers(1, 10_000))
def test_pauses_grow_to_a_bound(failures: int) -> None:
    assert FIRST_PAUSE <= pause_after(failures) <= pause_after(failures + 1) <= LONGEST_PAUSE
    assert pause_after(1) == FIRST_PAUSE


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ({}, "on"),
        ({"failures": 1}, "failing"),
        ({"paused_at": NOW}, "paused"),
        ({"look_at": NOW - timedelta(minutes=6)}, "overdue"),
    ],
)
def test_its_state_in_a_word(given: dict[str, object], state: str) -> None:
    assert sub(**given).state == state


def test_it_is_told_in_words() -> None:
    both = sub(threshold=1, within=5400.0, daily=time(8), zone="Asia/Almaty", wanted=Wanted(owner="hr-it", code=""))
    assert both.when() == "daily at 08:00 Asia/Almaty, and at 1 failure within 1h30m"
    assert both.what() == "code (none), owner hr-it"
    assert sub().what() == "all failed jobs"


GOOD = {"recipients": ["a@b.example"], "form": "csv", "daily": time(8), "zone": "UTC", "threshold": None, "within": None}


@pytest.mark.parametrize(
    "recipient", ["ann.lee+jobs@corp.example", "a@localhost", "o'neil@b.co", "slack:ops", "#ops", "https://hooks.example/x"]
)
def test_recipients(recipient: str) -> None:
    check(**GOOD | {"recipients": [recipient]})  # type: ignore[arg-type]  # a table of cases has all types in it


@pytest.mark.parametrize(
    "wrong",
    [
        *({"recipients": [who]} for who in ("", "a b", "Ann <a@b.example>", "a@b.example,c@d.example", "a@b@c", "@b.example", "a@", "a@b\r\nBcc: c@d", "дана@b.example", "a@.b", "x" * 300)),
        {"recipients": []}, {"recipients": ["a@b.example"] * 51}, {"form": "pdf"}, {"daily": None}, {"daily": time(8, 0, 30)}, {"zone": "Mars/Olympus"},
        {"zone": "../etc/passwd"}, {"threshold": 5}, {"within": 60.0}, {"threshold": 0, "within": 60.0}, {"threshold": 5, "within": 59.0},
        {"threshold": 5, "within": 32 * 86400.0},
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(wrong: dict[str, object]) -> None:
    check(**GOOD)  # type: ignore[arg-type]  # a table of cases has all types in it
    with pytest.raises(InvalidArguments):
        check(**GOOD | wrong)  # type: ignore[arg-type]  # a table of cases has all types in it


def test_a_filter_of_a_newer_release_is_not_left_out() -> None:
    assert read_filters({"owner": "hr-it"}, "task") == Wanted(group_by="task", owner="hr-it")
    with pytest.raises(InvalidArguments, match="colour"):
        read_filters({"owner": "hr-it", "colour": "red"}, "task")

"""Until when something counts, as people write it."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import click
import pytest

from jobwell.cli.when import moment

NOW = datetime(2030, 1, 31, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This host is an hour before UTC in winter."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("2h", "2030-01-31T14:00Z"), ("1h30m", "2030-01-31T13:30Z"), ("18:00", "2030-01-31T17:00Z"), ("9:05", "2030-02-01T08:05Z"),
        ("13:00", "2030-02-01T12:00Z"), ("2030-02-01T06:00", "2030-02-01T05:00Z"), ("2030-02-01 06:00", "2030-02-01T05:00Z"),
        ("2030-07-01T06:00", "2030-07-01T04:00Z"), ("2030-02-01T06:00Z", "2030-02-01T06:00Z"), ("2030-02-01T06:00+05:00", "2030-02-01T01:00Z"),
        ("2030-02-01", "2030-01-31T23:00Z"),
    ],
)  # fmt: skip
def test_a_duration_a_time_of_day_and_iso(typed: str, meant: str) -> None:
    assert moment(typed, NOW, "--until") == datetime.fromisoformat(meant)


@pytest.mark.parametrize("typed", ["0s", "2030-01-31T12:59", "2029-01-01", "soon", "25:00", "12:60", "", "-2h"])
def test_what_is_over_or_cannot_be_read_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter):
        moment(typed, NOW, "--until")


@pytest.mark.parametrize("typed", ["18:00", "2030-02-01"])
def test_for_takes_durations_only(typed: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration"):
        moment(typed, NOW, "--for", durations_only=True)


def test_the_hour_that_summer_time_takes_and_gives() -> None:
    assert moment("06:00", datetime(2030, 3, 30, 20, 0, tzinfo=UTC), "--until") == datetime(2030, 3, 31, 4, 0, tzinfo=UTC)
    assert moment("06:00", datetime(2030, 10, 26, 20, 0, tzinfo=UTC), "--until") == datetime(2030, 10, 27, 5, 0, tzinfo=UTC)

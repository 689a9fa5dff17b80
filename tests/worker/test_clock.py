"""The database's time in a process (case F14): told at each renewal, and monotonic between; the host's clock may say what it likes."""

import logging
from datetime import UTC, datetime, timedelta

import pytest

from jobwell.worker.clock import Clock

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Host:
    """Its two clocks, moved by hand."""

    def __init__(self) -> None:
        self.monotonic = 50.0
        self.wall = NOON.timestamp()

    def passes(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def clock(host: Host) -> Clock:
    return Clock(lambda: host.monotonic, lambda: host.wall)


def test_before_the_first_word_it_is_the_hosts_time(host: Host, clock: Clock) -> None:
    host.passes(3)
    assert clock.now() == NOON + timedelta(seconds=3)
    assert clock.skew is None


def test_it_is_the_databases_time_whatever_the_hosts_clock_does(host: Host, clock: Clock) -> None:
    began = host.monotonic
    host.passes(1)
    clock.said(NOON - timedelta(hours=1), NOON - timedelta(hours=1), began)
    assert clock.now() == NOON - timedelta(hours=1) + timedelta(seconds=0.5), "the middle of question and answer"
    assert clock.skew == pytest.approx(3600.5)
    host.passes(2)
    host.wall -= 7200
    assert clock.now() == NOON - timedelta(hours=1) + timedelta(seconds=2.5)


def test_a_slow_answer_is_no_wrong_clock(host: Host, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    began = host.monotonic
    host.passes(3)
    clock.said(NOON + timedelta(seconds=3), NOON + timedelta(seconds=3), began)  # all of it on the way there
    assert abs(clock.skew or 9) < 2
    assert caplog.messages == []


def test_time_travel_of_a_test_is_no_wrong_clock(host: Host, clock: Clock) -> None:
    clock.said(NOON + timedelta(days=3), NOON, host.monotonic)
    assert clock.skew == 0
    assert clock.now() == NOON + timedelta(days=3)


def test_what_is_above_two_seconds_is_said_once(host: Host, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for off in (0, 2, 2.1, 2.2, -600, 1, 1, -2.5):
        clock.said(NOON - timedelta(seconds=off), NOON - timedelta(seconds=off), host.monotonic)
    assert caplog.messages == [
        "this host's clock is 2.1 s ahead of the database's; jobs go by the database's",
        "this host's clock agrees with the database's again",
        "this host's clock is 2.5 s behind the database's; jobs go by the database's",
    ]

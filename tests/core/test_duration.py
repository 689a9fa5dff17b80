"""Durations as people write them."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell.core import duration
from jobwell.core.errors import DeclarationError

CENTURY = 3.2e9


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("500ms", 0.5), ("30s", 30), ("2m", 120), ("2h", 7200), ("2d", 172800), ("1w", 604800), ("1h30m", 5400),
        (" 1h 30m ", 5400), ("1.5h", 5400), ("0s", 0), ("1d2h3m4s5ms", 93784.005), (90, 90), (0.25, 0.25), (0, 0),
        (timedelta(minutes=1, milliseconds=5), 60.005),
    ],
)  # fmt: skip
def test_a_duration_is_read_as_seconds(written: Any, expected: float) -> None:
    assert duration.seconds(written) == pytest.approx(expected)


@pytest.mark.parametrize(
    "wrong",
    ["", " ", "30", "s", "-5s", "5 parsecs", "1h30", "h1", "1,5h", "5S", "1e3s", "٣", "5s;", True, None, [], Decimal(5), b"5s",
     -1, -0.001, float("nan"), float("inf"), 10**12, "9" * 400 + "s", timedelta(seconds=-1), timedelta.max],
)  # fmt: skip
def test_what_is_no_duration_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(DeclarationError, match="^timeout="):
        duration.seconds(wrong, "timeout")


def test_the_refusal_shows_how_to_write_one() -> None:
    with pytest.raises(DeclarationError, match="'30s', '2h' or '1h30m'"):
        duration.seconds("soon")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0ms"), (0.25, "250ms"), (0.9999, "1s"), (1, "1s"), (59.6, "1m"), (90, "1m30s"), (3600, "1h"), (86400, "1d"),
     (90061, "1d1h"), (86401, "1d1s"), (31536000, "365d")],
)  # fmt: skip
def test_seconds_are_written_for_people(value: float, expected: str) -> None:
    assert duration.text(value) == expected


@given(st.integers(0, 86399))
def test_what_is_written_is_read_back_to_within_its_two_units(value: int) -> None:
    back = duration.seconds(duration.text(value))
    assert back <= value
    assert value - back < (60 if value >= 3600 else 1)


@given(st.floats(0, CENTURY))
def test_every_number_up_to_a_century_can_be_written_and_read(value: float) -> None:
    assert duration.seconds(duration.text(value)) == pytest.approx(value, rel=0.05, abs=0.0006 if value < 1 else 0.5)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert 0 <= duration.seconds(text) <= CENTURY
    except DeclarationError as error:
        assert repr(text) in error.message

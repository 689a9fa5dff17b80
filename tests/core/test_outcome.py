"""The wishes of task code: how long to wait, in any form that people and headers use."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobwell import Reject, Retry, Snooze
from jobwell.core.errors import DeclarationError
from jobwell.core.outcome import after_seconds

NOW = datetime(2026, 1, 28, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (120, 120), (0.5, 0.5), ("120", 120), ("0", 0), (" 7\n", 7), ("2m", 120), ("1h30m", 5400), (timedelta(hours=1), 3600),
        ("Wed, 28 Jan 2026 12:01:00 GMT", 60), ("Wed, 28 Jan 2026 12:01:00 -0000", 60), ("Wed, 28 Jan 2026 17:01:00 +0500", 60),
        ("Tue, 27 Jan 2026 12:00:00 GMT", 0), (NOW + timedelta(seconds=9), 9), (NOW - timedelta(days=9), 0),
        (datetime(2026, 1, 28, 18, 0, tzinfo=ZoneInfo("Asia/Almaty")), 3600),
        (datetime(2026, 1, 28, 7, 30, tzinfo=timezone(timedelta(hours=-5))), 1800),
    ],
)  # fmt: skip
def test_a_wish_is_read_as_seconds_from_now(value: Any, expected: float) -> None:
    assert after_seconds(value, NOW, "after") == expected


@pytest.mark.parametrize(
    "value",
    ["", "soon", "-5", -5, None, True, float("nan"), float("inf"), "Monday", "Mon, 99 Foo 2026 12:00:00 GMT", "Wed, ", "²", "1²",
     "9" * 5000, "9" * 400, datetime(2026, 1, 28), "2026-01-28T12:00:00"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_by_name(value: Any) -> None:
    with pytest.raises(DeclarationError, match="^after="):
        after_seconds(value, NOW, "after")


@given(
    st.text()
    | st.text("0123456789²٣ .-smh")
    | st.sampled_from(["Mon", "Sun, "]).flatmap(lambda day: st.text().map(lambda rest: day + rest))
)
@example("Mon, 01 Jan 0001 00:00:00 +2359")
@example("Mon, 01 Jan 99999999999999999999 00:00:00 GMT")
@example("Mon, 01 Jan 2026 00:00:00 +9999")
def test_a_header_of_any_content_is_read_or_refused(header: str) -> None:
    with suppress(DeclarationError):
        assert 0 <= after_seconds(header, NOW, "after") < float("inf")


def test_orders_carry_what_people_will_read() -> None:
    assert (Reject("gone", "employee 7 is gone").code, str(Reject("gone"))) == ("gone", "gone")
    assert str(Reject("gone", "employee 7 is gone")) == Reject("gone", "employee 7 is gone").message == "employee 7 is gone"
    assert (Retry(after="2m").after, str(Retry())) == ("2m", "the task asked for another attempt")
    assert (Snooze("1h").until, str(Snooze("1h", "still closed"))) == ("1h", "still closed")

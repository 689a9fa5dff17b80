"""What a card says, from counters."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from jobwell.core.errors import InvalidArguments
from jobwell.core.runs import Canary, Counts, canary_of, percent, slowest, spans, speed, stage_cards, whole_percent

NOW = datetime(2026, 1, 28, tzinfo=UTC)


def counts(stage: int = 0, after: int | None = None, **given: Any) -> Counts:
    usual: dict[str, Any] = {"done": 0, "failed": 0, "skipped": 0, "cancelled": 0, "state": "open", "name": f"s{stage}"}
    return Counts(stage=stage, after=after, **(usual | given))


def test_a_stage_is_meant_for_what_the_one_before_lets_through() -> None:
    first, second = stage_cards([counts(done=6, failed=2, skipped=1), counts(1, 0, done=3)], items=10, known=True, now=NOW)
    assert (first.total, first.processed, first.open, first.percent) == (10, 9, 1, 90.0)
    assert (second.total, second.open, second.percent, second.after) == (7, 4, 42.8, "s0")
    assert whole_percent([first, second]) == 66.4


def test_nothing_is_said_of_a_total_that_is_not_known() -> None:
    (one,) = stage_cards([counts(done=5, speed=1.0, mark_at=NOW)], items=10, known=False, now=NOW)
    assert (one.total, one.percent, one.remaining, one.open) == (None, None, None, 5)
    assert whole_percent([one]) is None


@given(some.integers(0, 10**7), some.integers(0, 10**7))
def test_a_hundred_percent_is_the_end_and_nothing_before(ended: int, total: int) -> None:
    found = percent(ended, total)
    assert 0 <= found <= 100
    assert (found == 100) == (ended >= total)


@pytest.mark.parametrize(
    ("given", "seconds", "expected"),
    [
        (counts(), 5, None),
        (counts(done=10, mark_at=NOW), 5, 2.0),
        (counts(done=10, mark=10, mark_at=NOW, speed=4.0), 5, 4.0),
        (counts(done=10, mark=10, mark_at=NOW, speed=4.0), 60, None),
        (counts(done=20, mark=10, mark_at=NOW, speed=4.0), 5, 3.0),
        (counts(done=20, mark=10, mark_at=NOW, speed=4.0), 0.5, 4.0),
        (counts(done=8, mark=10, mark_at=NOW, speed=4.0), 5, 4.0),
    ],
)  # fmt: skip
def test_speed(given: Counts, seconds: float, expected: float | None) -> None:
    assert speed(given, NOW + timedelta(seconds=seconds)) == expected


def test_the_slowest_stage_says_the_end() -> None:
    stages = stage_cards(
        [counts(done=5, speed=5.0, mark_at=NOW, mark=5), counts(1, 0, done=1, mark=1, speed=0.5, mark_at=NOW)],
        items=10,
        known=True,
        now=NOW,
    )
    found = slowest(stages)
    assert found is not None
    assert (found.name, found.remaining) == ("s1", 18.0)
    assert slowest(stage_cards([counts(done=10)], items=10, known=True, now=NOW)) is None


@pytest.mark.parametrize(
    ("given", "only", "expected"),
    [
        (None, None, None), (20, None, {"count": 20}), (0.05, None, {"share": 0.05}),
        (None, {"department": "Finance"}, {"only": {"department": "Finance"}}),
    ],
)  # fmt: skip
def test_canary(given: float | None, only: dict[str, str] | None, expected: dict[str, Any] | None) -> None:
    found = canary_of(given, only)
    assert (found.stored() if isinstance(found, Canary) else None) == expected


@pytest.mark.parametrize(("given", "only"), [(0, None), (-1, None), (1.5, None), (True, None), ("5", None), (5, {"a": 1})])
def test_no_canary(given: Any, only: Any) -> None:
    with pytest.raises(InvalidArguments, match="nothing was started"):
        canary_of(given, only)


@given(some.sets(some.integers(1, 500)))
def test_spans_hold_exactly_their_numbers(numbers: set[int]) -> None:
    found = spans(sorted(numbers))
    assert sorted(number for first, last in found for number in range(first, last + 1)) == sorted(numbers)
    assert all(one[1] + 1 < two[0] for one, two in pairwise(found))

"""Places in time: even for any number of jobs, known or not, the same each time."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell.core.errors import EnqueueError
from jobwell.core.ids import new_id
from jobwell.core.job import NewJob
from jobwell.core.spread import Spread, halved, spread_of

NOW = datetime(2031, 1, 1, tzinfo=UTC)


def job(delay: float | None = 0.0, run_at: datetime | None = None) -> NewJob:
    return NewJob(new_id(), "note", "default", 100, 1, "", "", "{}", 2, delay, run_at, 60.0)


def places(spread: Spread, count: int) -> list[float]:
    """Seconds from now."""
    found = [spread.place(job(), NOW).run_at for _ in range(count)]
    return [(at - NOW).total_seconds() for at in found if at is not None]


def test_a_known_number_is_spread_in_input_order() -> None:
    assert places(Spread(10.0, 5), 5) == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_a_stream_fills_the_widest_gaps() -> None:
    assert places(Spread(8.0, None), 8) == [0.0, 4.0, 2.0, 6.0, 1.0, 5.0, 3.0, 7.0]


@given(st.integers(1, 3000))
def test_wherever_a_stream_ends_no_gap_is_more_than_twice_as_wide_as_another(count: int) -> None:
    found = sorted(map(halved, range(count)))
    gaps = [right - left for left, right in zip(found, [*found[1:], 1.0], strict=True)]
    assert max(gaps) <= 2 * min(gaps)
    assert len(set(found)) == count


@given(st.integers(1, 500), st.integers(0, 600), st.floats(0.001, 1e6))
def test_nothing_is_placed_outside_of_the_spread_also_where_a_length_was_wrong(total: int, count: int, over: float) -> None:
    assert all(0 <= place < over or place == pytest.approx(over) for place in places(Spread(over, total), count))


def test_the_own_time_of_a_job_is_added_to_and_a_past_one_counts_as_now() -> None:
    def second(**columns: float | datetime | None) -> NewJob:
        spread = Spread(10.0, 2)
        spread.place(job(), NOW)
        return spread.place(job(**columns), NOW)  # type: ignore[arg-type]

    assert second().run_at == NOW + timedelta(seconds=5)
    assert second(delay=60.0).run_at == NOW + timedelta(seconds=65)
    assert second(run_at=NOW + timedelta(hours=1)).run_at == NOW + timedelta(hours=1, seconds=5)
    assert second(run_at=NOW - timedelta(days=9)).run_at == NOW + timedelta(seconds=5)


def test_the_job_that_was_given_is_left_as_it_was() -> None:
    given_job = job()
    Spread(10.0, None).place(given_job, NOW)
    assert (given_job.run_at, given_job.delay) == (None, 0.0)


def test_no_spread_and_a_spread_of_nothing() -> None:
    assert spread_of(None, []) is None
    assert spread_of(0, [job()]) is None


@pytest.mark.parametrize("wrong", ["soon", -1, "4000d", True])
def test_what_is_no_spread_is_refused(wrong: str | int) -> None:
    with pytest.raises(EnqueueError, match=r"spread=.*; nothing was enqueued"):
        spread_of(wrong, [])

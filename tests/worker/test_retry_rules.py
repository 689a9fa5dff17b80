"""Which rule an error follows, and what it asks for itself: from a task to the store."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobwell import Delays, Fixed, Retries, Retry
from jobwell.core.classify import Verdict
from jobwell.testing import Testbed
from jobwell.worker import attempt
from tests.worker.helpers import Acts


def header(moment: datetime) -> str:
    return moment.strftime("%a, %d %b %Y %H:%M:%S GMT")


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes every error an answer of some server."""

    def make(**said: Any) -> None:
        monkeypatch.setattr(attempt, "classify", lambda error, *rules: Verdict(**said))

    return make


def waited(bed: Testbed, handle: Any) -> tuple[float, str | None]:
    row = bed.attempts(handle)[-1]
    return (row["next_at"] - row["ended_at"]).total_seconds(), row["note"]


def test_each_class_has_its_delay(bed: Testbed, acts_with: Callable[..., Acts]) -> None:
    bed.clock.freeze()
    acts = acts_with(
        retry=Retries(
            Delays("50s", jitter=0), unknown=Delays("70s", jitter=0), errors={FileNotFoundError: Delays("90s", jitter=0)}
        )
    )
    for word, seconds in (("temporary", 50), ("unknown", 70), ("logical", 90)):  # the last one would go to the quarantine
        handle = acts.act.enqueue(word)
        assert bed.drain().counts == {"retrying": 1}
        assert waited(bed, handle) == (seconds, None)


def test_a_status_has_its_delay(bed: Testbed, acts_with: Callable[..., Acts], answered: Callable[..., None]) -> None:
    bed.clock.freeze()
    acts = acts_with(retry=Retries(throttled=Delays("70s", jitter=0), status={503: Delays("90s", jitter=0)}))
    for status, seconds in ((429, 70), (503, 90)):
        answered(kind="throttled", status=status)
        handle = acts.act.enqueue("unknown")
        bed.drain()
        assert waited(bed, handle) == (seconds, None)


@pytest.mark.parametrize(
    ("asked", "least", "note"),
    [
        (120.0, 120, None), ("120", 120, None), ("in two minutes", 10, None),
        ("31536000", 86400, "asked to wait 365d; cut to 1d"), ("0", 10, None), ("tomorrow", 10, "its wish could not be read: after='tomorrow'"),
        (header(datetime(2020, 1, 1, tzinfo=UTC)), 10, None),
    ],
)  # fmt: skip
def test_i1_what_the_server_asked_for_is_a_floor(
    bed: Testbed, acts_with: Callable[..., Acts], answered: Callable[..., None], asked: Any, least: float, note: str | None
) -> None:
    """Case I1: also where it is no error of ours that asks."""
    bed.clock.freeze()
    acts = acts_with(retry=Fixed("10s", jitter=0))
    if asked == "in two minutes":
        asked, least = header(bed.clock.now() + timedelta(minutes=2)), 119  # a header has whole seconds
    answered(kind="throttled", status=429, asked=asked)
    handle = acts.act.using(deadline="3d").enqueue("unknown")
    assert bed.drain().counts == {"retrying": 1}
    seconds, told = waited(bed, handle)
    assert least <= seconds <= (10 if least == 10 else least * 1.1 + 60)
    assert (told or "").startswith(note or "")
    assert (told is None) == (note is None)


def test_a_wish_past_the_deadline_ends_the_job_now_and_says_so(bed: Testbed, acts: Acts, answered: Callable[..., None]) -> None:
    answered(kind="throttled", status=503, asked="7200")
    handle = acts.act.using(deadline="1h").enqueue("unknown")
    assert bed.drain().counts == {"failed": 1}
    job = bed.job(handle)
    assert (job.reason, job.failures) == ("deadline", 1)
    assert bed.attempts(handle)[-1]["message"] == "it did not work (asked to wait 2h, which is past its deadline)"


def test_d18_asking_again_and_again_ends_at_the_attempts(bed: Testbed, acts_with: Callable[..., Acts]) -> None:
    """Case D18: "retry after a second" counts as a failure."""

    def again(ctx: Any, n: int) -> None:
        raise Retry("busy", after=1)

    acts = acts_with(retry=Fixed("1s", attempts=3))
    acts.words["again"] = again
    handle = acts.act.enqueue("again")
    assert bed.drain(retries=True).counts == {"retrying": 2, "failed": 1}
    job = bed.job(handle)
    assert (job.reason, job.failures) == ("exhausted", 3)

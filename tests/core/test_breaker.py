"""When a breaker opens, for how long, and what closes it; and when a retry is put off."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell.core.breaker import LONGEST_ASKED, Breaker, Standing, decide, put_off, told_by
from jobwell.core.classify import Verdict
from jobwell.core.errors import DeclarationError

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RULE = Breaker(failures=0.5, window="30s", at_least=10, open="10s", longest="2m", probes=2)
COUNTS = st.integers(0, 1000)


def standing(
    *,
    open: bool = False,  # noqa: A002  as people say it
    until: float | None = None,
    opens: int = 0,
    good: int = 0,
    bad: int = 0,
) -> Standing:
    moment = None if until is None else NOW + timedelta(seconds=until)
    return Standing("sms", open, 1, moment, opens, good, bad, 0, 0, NOW)


def seconds(move: Any) -> float:
    return float((move.until - NOW).total_seconds())


@given(good=COUNTS, bad=COUNTS)
def test_it_opens_exactly_from_the_declared_share_on(good: int, bad: int) -> None:
    move = decide(RULE, standing(good=good, bad=bad))
    assert (move is not None) == (good + bad >= 10 and bad >= 0.5 * (good + bad))
    if move is not None:
        assert (seconds(move), move.opens) == (10, 1)
        assert f"{bad} of {good + bad} calls" in move.why


@given(opens=st.integers(0, 5000))
def test_each_failed_probe_opens_it_for_longer_up_to_the_longest(opens: int) -> None:
    move = decide(RULE, standing(open=True, until=-1, opens=opens, bad=1))
    again = decide(RULE, standing(open=True, until=-1, opens=opens + 1, bad=1))
    assert move is not None
    assert again is not None
    assert 10 <= seconds(move) <= seconds(again) <= 120
    assert move.opens == opens + 1


def test_probes_close_it_when_so_many_went_well() -> None:
    assert decide(RULE, standing(open=True, until=-1, opens=3, good=1)) is None
    move = decide(RULE, standing(open=True, until=-1, opens=3, good=2))
    assert move is not None
    assert (move.until, move.opens) == (None, 0)


@given(good=COUNTS, bad=COUNTS, until=st.floats(0.001, 1000))
def test_before_its_time_nothing_closes_it_or_opens_it_anew(good: int, bad: int, until: float) -> None:
    assert decide(RULE, standing(open=True, until=until, good=good, bad=bad)) is None


@given(asked=st.floats(0.01, 1e7), until=st.one_of(st.none(), st.floats(-100, 1e5)))
def test_a_wish_is_kept_and_never_makes_a_pause_shorter(asked: float, until: float | None) -> None:
    move = decide(RULE, standing(open=until is not None, until=until), asked=asked)
    held = min(asked, LONGEST_ASKED)
    if move is None:
        assert until is not None
        assert until >= held - 0.2501
    else:
        assert seconds(move) == pytest.approx(held, abs=1e-5)
        assert until is None or held > until
        assert ("cut to 1d" in move.why) == (asked > LONGEST_ASKED)


@pytest.mark.parametrize(
    ("error", "verdict", "told"),
    [
        (None, None, "good"),
        (TimeoutError(), Verdict("temporary"), "bad"),
        (FileNotFoundError(), Verdict("logical"), "good"),
        (ValueError(), Verdict("logical", status=503), "bad"),
        (KeyError("a fault in the task"), Verdict("unknown"), None),
        (OSError("no route to host"), Verdict("unknown"), "bad"),
    ],
)
def test_what_an_end_says_about_the_resource(error: Exception | None, verdict: Verdict | None, told: str | None) -> None:
    assert told_by(error, verdict) == told


@given(firsts=COUNTS, retries=COUNTS, uniform=st.floats(0, 1, exclude_max=True))
def test_retries_within_the_budget_are_granted_and_others_wait_the_longer_the_more_there_are(
    firsts: int, retries: int, uniform: float
) -> None:
    wait = put_off(0.2, 30, firsts=firsts, retries=retries, uniform=uniform)
    assert (wait is None) == (retries < max(5, 0.2 * firsts))
    if wait is not None:
        more = put_off(0.2, 30, firsts=firsts, retries=retries + 1, uniform=uniform)
        assert more is not None
        assert 15 <= wait <= more <= 300


@pytest.mark.parametrize(
    "wrong",
    [{"failures": 0}, {"failures": 1.1}, {"at_least": 0}, {"probes": True}, {"window": "0s"}, {"open": "2d"}, {"longest": "5s"}],
)
def test_what_is_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        Breaker(**wrong)

"""When the next attempt is due (case I1): spread, never earlier than asked, bounded."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell import Backoff, Delays, Fixed
from jobwell.core.errors import DeclarationError
from jobwell.core.outcome import after_seconds
from jobwell.core.retry import DEFAULT, LONGEST_ASKED, NEVER, UNKNOWN_ATTEMPTS, Plan, RetryRule, next_attempt

DRAWS = st.floats(0, 1, exclude_max=True)
RULES: st.SearchStrategy[RetryRule] = (
    st.builds(
        Backoff, st.floats(0, 1e6), factor=st.floats(1, 100), cap=st.floats(0, 1e9), attempts=st.integers(1, 1000),
        jitter=st.sampled_from(["full", "equal", "decorrelated", "none"]),
    )
    | st.builds(Fixed, st.floats(0, 1e9), attempts=st.integers(1, 1000), jitter=st.floats(0, 1))
    | st.builds(lambda many, jitter: Delays(*many, jitter=jitter), st.lists(st.floats(0, 1e9), min_size=1), st.floats(0, 1))
)  # fmt: skip
KINDS = st.sampled_from(["temporary", "throttled", "logical", "unknown"])
FAILURES = st.integers(1, 10**9)


def half() -> float:
    return 0.5


def top() -> float:
    return 1 - 2**-53


def decide(rule: RetryRule = DEFAULT, **options: Any) -> Any:
    """`next_attempt` for a first, temporary failure without wish and deadline."""
    given_ = {"failures": 1, "kind": "temporary", "asked": None, "remaining": None, "uniform": half}
    return next_attempt(rule, **(given_ | options))


# --- the rules -----------------------------------------------------------------------------------------------------------


@given(st.floats(0, 1e6), st.floats(1, 100), st.floats(0, 1e9), FAILURES, DRAWS)
def test_backoff_draws_from_zero_to_the_capped_power(base: float, factor: float, cap: float, failures: int, draw: float) -> None:
    delay = Backoff(base, factor=factor, cap=cap).delay(failures, lambda: draw)
    longest = min(cap, base * factor ** min(failures - 1, 64))
    assert 0 <= delay <= longest
    assert delay == pytest.approx(longest * draw)


@pytest.mark.parametrize(("failures", "longest"), [(1, 10), (2, 30), (3, 90), (4, 270), (5, 600), (6, 600), (10**9, 600)])
def test_the_default_grows_threefold_from_ten_seconds_to_ten_minutes(failures: int, longest: float) -> None:
    assert DEFAULT.delay(failures, lambda: 1.0) == longest
    assert DEFAULT.delay(failures, lambda: 0.0) == 0


def test_backoff_without_jitter_does_not_draw() -> None:
    assert Backoff("1s", factor=2, jitter="none").delay(4, pytest.fail) == 8  # type: ignore[arg-type]


def test_the_largest_backoff_at_a_huge_count_is_its_cap() -> None:
    assert Backoff("100d", factor=100, cap="50w", jitter="none").delay(10**12, half) == 50 * 7 * 86400


@given(st.floats(0, 1e9), st.floats(0, 1), FAILURES, DRAWS)
def test_fixed_stays_within_its_share(every: float, jitter: float, failures: int, draw: float) -> None:
    delay = Fixed(every, jitter=jitter).delay(failures, lambda: draw)
    assert every * (1 - jitter) - 1e-6 <= delay <= every * (1 + jitter) + 1e-6
    assert delay >= 0


@given(st.lists(st.floats(0, 1e9), min_size=1), FAILURES)
def test_delays_are_taken_in_order_and_the_last_one_stays(delays: list[float], failures: int) -> None:
    rule = Delays(*delays, jitter=0)
    assert rule.delay(failures, half) == delays[min(failures, len(delays)) - 1]
    assert rule.attempts == len(delays) + 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Backoff("soon"), "base='soon'"), (lambda: Backoff(factor=0.5), "factor=0.5"), (lambda: Backoff(factor=101), "factor"),
        (lambda: Backoff(factor=float("nan")), "factor"), (lambda: Backoff(cap=-1), "cap=-1"), (lambda: Backoff(attempts=0), "attempts=0"),
        (lambda: Backoff(attempts=True), "attempts=True"), (lambda: Backoff(attempts=1001), "attempts=1001"),
        (lambda: Backoff(attempts=2.5), "attempts=2.5"), (lambda: Backoff(jitter="some"), "jitter='some'"),
        (lambda: Fixed("5s", jitter=1.5), "jitter=1.5"), (lambda: Fixed("5s", jitter=float("nan")), "jitter"), (lambda: Fixed("x"), "every='x'"),
        (Delays, "at least one delay"), (lambda: Delays("5s", "x"), "delay='x'"), (lambda: Delays("5s", jitter=-0.1), "jitter"),
    ],
)  # fmt: skip
def test_a_rule_that_makes_no_sense_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        make()


# --- the decision --------------------------------------------------------------------------------------------------------


@given(RULES, FAILURES, KINDS, st.none() | st.floats(0, 1e9), st.none() | st.floats(0, 1e9), DRAWS)
def test_whatever_the_rule_a_plan_keeps_all_bounds(
    rule: RetryRule, failures: int, kind: str, asked: float | None, remaining: float | None, draw: float
) -> None:
    plan = next_attempt(rule, failures=failures, kind=kind, asked=asked, remaining=remaining, uniform=lambda: draw)
    allowed = min(rule.attempts, UNKNOWN_ATTEMPTS) if kind == "unknown" else rule.attempts
    assert (plan == "exhausted") is (failures >= allowed)
    if isinstance(plan, Plan):
        assert plan.delay >= (min(asked, LONGEST_ASKED) if asked is not None else 0)
        assert remaining is None or plan.delay < remaining
        assert (plan.note is not None) is (asked is not None and asked > LONGEST_ASKED)
    elif plan == "deadline":
        assert remaining is not None


@given(RULES.filter(lambda rule: rule.attempts > 1), st.data(), DRAWS)
def test_without_a_wish_the_rule_is_followed_to_the_letter(rule: RetryRule, data: st.DataObject, draw: float) -> None:
    failures = data.draw(st.integers(1, rule.attempts - 1))
    assert decide(rule, failures=failures, uniform=lambda: draw) == Plan(rule.delay(failures, lambda: draw))


@pytest.mark.parametrize(("failures", "over"), [(1, False), (4, False), (5, True), (6, True)])
def test_attempts_count_the_first_one(failures: int, over: bool) -> None:
    assert (decide(failures=failures) == "exhausted") is over


def test_never_means_one_attempt() -> None:
    assert decide(NEVER) == "exhausted"


@pytest.mark.parametrize(("attempts", "failures", "over"), [(10, 2, False), (10, 3, True), (2, 2, True), (1, 1, True)])
def test_unknown_errors_get_at_most_three_attempts(attempts: int, failures: int, over: bool) -> None:
    assert (decide(Backoff(attempts=attempts), failures=failures, kind="unknown") == "exhausted") is over


@pytest.mark.parametrize(("remaining", "planned"), [(5.01, True), (5.0, False), (0.0, False)])
def test_nothing_is_planned_at_the_deadline_or_past_it(remaining: float, planned: bool) -> None:
    assert decide(Backoff("10s"), remaining=remaining) == (Plan(5.0) if planned else "deadline")


def test_a_wish_past_the_deadline_is_the_end() -> None:
    assert decide(asked=120, remaining=119) == "deadline"


def test_exhausted_is_said_before_deadline() -> None:
    assert decide(failures=5, remaining=0.0) == "exhausted"


def test_a_year_is_cut_to_a_day_with_a_note() -> None:
    plan = decide(asked=365 * 86400.0)
    assert 86400 <= plan.delay <= 86400 + 60
    assert plan.note == "asked to wait 365d; cut to 1d"


def test_a_wish_beats_a_rule_that_would_wait_longer() -> None:
    assert 5 <= decide(Fixed("1h"), asked=5, uniform=top).delay <= 65


# --- case I1: 1,000 jobs fail in one second -------------------------------------------------------------------------------

NOW = datetime(2026, 1, 28, 12, 0, 0, tzinfo=UTC)


def crowd(**options: Any) -> list[float]:
    """The delays of 1,000 jobs."""
    random = Random(20260128)
    return [decide(**{"uniform": random.random, **options}).delay for _ in range(1000)]


def fullest_second(delays: list[float]) -> float:
    """The share of the herd that comes back within one second."""
    return max(Counter(int(delay) for delay in delays).values()) / len(delays)


@pytest.mark.parametrize(("failures", "share"), [(1, 0.13), (2, 0.055), (3, 0.03), (4, 0.015)])
def test_a_herd_is_spread_over_the_window_of_the_rule(failures: int, share: float) -> None:
    delays = crowd(failures=failures)
    longest = DEFAULT.delay(failures, lambda: 1.0)
    assert fullest_second(delays) <= share
    assert min(delays) < longest * 0.05
    assert max(delays) > longest * 0.95


WISHES = {
    "a number": (120, 120.0), "a text": ("120", 120.0), "a header": (" 120 ", 120.0), "a duration": ("2m", 120.0),
    "a timedelta": (timedelta(minutes=2), 120.0), "a datetime": (NOW + timedelta(minutes=2), 120.0),
    "an HTTP date": ("Wed, 28 Jan 2026 12:02:00 GMT", 120.0), "an old HTTP date": ("Wednesday, 28-Jan-26 12:02:00 GMT", 120.0),
    "a past date": ("Wed, 28 Jan 2026 11:00:00 GMT", 0.0), "now": (0, 0.0), "a second": (1, 1.0),
    "a year": (31_536_000, 86400.0), "a year as date": ("Thu, 28 Jan 2027 12:00:00 GMT", 86400.0),
}  # fmt: skip


@pytest.mark.parametrize(("wish", "floor"), WISHES.values(), ids=WISHES.keys())
@pytest.mark.parametrize("rule", [Backoff(), Backoff(jitter="none"), Fixed("20s"), Delays("15s", "1m")])
def test_a_herd_that_was_told_a_time_comes_after_it_and_not_at_once(rule: RetryRule, wish: Any, floor: float) -> None:
    asked = after_seconds(wish, NOW, "after")
    delays = crowd(rule=rule, asked=asked)
    assert min(delays) >= floor
    assert max(delays) <= floor + 60
    assert fullest_second(delays) <= 0.13


def test_a_herd_of_unlike_rules_does_not_meet_either() -> None:
    assert fullest_second(crowd(rule=Backoff("1m"), asked=30.0) + crowd(rule=Fixed("50s"), asked=30.0)) <= 0.05

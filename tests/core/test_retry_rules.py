"""How delays are drawn, and which rule an error follows."""

from collections.abc import Callable
from random import Random
from statistics import fmean, quantiles
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell import Backoff, Delays, Fixed, Retries
from jobwell.core.classify import Kind, Verdict
from jobwell.core.errors import DeclarationError
from jobwell.core.retry import LONGEST_CHAIN, Match, Plan, matching, next_attempt

DRAWS = st.floats(0, 1, exclude_max=True)
FAILURES = st.integers(1, 10**9)


@given(st.floats(0, 1e6), st.floats(1, 100), st.floats(0, 1e9), FAILURES, DRAWS)
def test_equal_is_half_fixed_and_half_drawn(base: float, factor: float, cap: float, failures: int, draw: float) -> None:
    longest = Backoff(base, factor=factor, cap=cap, jitter="none").delay(failures, lambda: 0.0)
    delay = Backoff(base, factor=factor, cap=cap, jitter="equal").delay(failures, lambda: draw)
    assert longest / 2 <= delay <= longest
    assert delay == pytest.approx(longest * (1 + draw) / 2)


@given(st.floats(0, 1e6), st.floats(1, 100), st.floats(0, 1e9), FAILURES, st.randoms(use_true_random=False))
def test_decorrelated_stays_between_base_and_cap(base: float, factor: float, cap: float, failures: int, random: Random) -> None:
    delay = Backoff(base, factor=factor, cap=cap, jitter="decorrelated").delay(failures, random.random)
    assert min(base, cap) <= delay <= cap


def test_decorrelated_draws_once_per_failure_and_no_more_than_its_bound() -> None:
    drawn = []

    def draw() -> float:
        drawn.append(1)
        return 0.5

    rule = Backoff("1s", factor=3, cap="1h", jitter="decorrelated")
    assert rule.delay(1, draw) == 2.0  # half way from 1 to 3
    assert rule.delay(2, draw) == 3.5  # half way from 1 to 6
    assert len(drawn) == 3
    rule.delay(10**9, draw)
    assert len(drawn) == 3 + LONGEST_CHAIN


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_decorrelated_is_distributed_as_a_chain_that_is_kept(failures: int) -> None:
    """Each link from base to three times the one before, at most the cap."""
    one, other = Random(1), Random(2)
    kept = []
    for _ in range(20_000):
        last = 10.0
        for _ in range(failures):
            last = min(100.0, one.uniform(10.0, last * 3))
        kept.append(last)
    rule = Backoff("10s", factor=3, cap="100s", jitter="decorrelated")
    drawn = [rule.delay(failures, other.random) for _ in range(20_000)]
    assert fmean(drawn) == pytest.approx(fmean(kept), rel=0.02)
    assert quantiles(drawn, n=4) == pytest.approx(quantiles(kept, n=4), rel=0.04)


# --- which rule ----------------------------------------------------------------------------------------------------------


class Slow(TimeoutError):
    """One of the user's own."""


PLAIN, BUSY, UNSURE, GONE, SOON = Backoff(), Backoff("1m", attempts=20), Fixed("1m"), Delays("30s"), Fixed("5s")
RULES = Retries(PLAIN, throttled=BUSY, unknown=UNSURE, status={503: GONE}, errors={TimeoutError: SOON, "httpx.ReadTimeout": SOON})


def names(error: type[BaseException]) -> list[str]:
    return [f"{one.__module__}.{one.__qualname__}" for one in error.__mro__]


@pytest.mark.parametrize(
    ("kind", "status", "known", "match"),
    [
        ("temporary", None, [], Match(PLAIN)), ("throttled", 429, [], Match(BUSY, own=True)), ("unknown", None, [], Match(UNSURE, own=True)),
        ("throttled", 503, [], Match(GONE, own=True, again=True)), ("temporary", 500, [], Match(PLAIN)),
        ("temporary", None, names(TimeoutError), Match(SOON, own=True, again=True)), ("temporary", 503, names(Slow), Match(SOON, own=True, again=True)),
        ("unknown", None, ["httpx.ReadTimeout", "httpx.TimeoutException"], Match(SOON, own=True, again=True)), ("logical", 404, [], Match(PLAIN)),
    ],
)  # fmt: skip
def test_the_most_particular_rule_counts(kind: Kind, status: int | None, known: list[str], match: Match) -> None:
    assert matching(RULES, Verdict(kind, status=status), known) == match


def test_the_nearest_class_counts() -> None:
    rules = Retries(errors={TimeoutError: SOON, Slow: BUSY})
    assert matching(rules, Verdict("temporary"), names(Slow)).rule == BUSY
    assert matching(rules, Verdict("temporary"), names(TimeoutError)).rule == SOON


@given(st.sampled_from(["temporary", "throttled", "unknown", "logical"]), st.none() | st.integers(100, 599))
def test_one_rule_is_for_all(kind: Kind, status: int | None) -> None:
    assert (
        matching(PLAIN, Verdict(kind, status=status), names(Slow))
        == matching(Retries(PLAIN), Verdict(kind, status=status))
        == Match(PLAIN)
    )


def decide(match: Match, failures: int, kind: str) -> Any:
    return next_attempt(match.rule, failures=failures, kind=kind, asked=None, remaining=None, uniform=lambda: 0.5, own=match.own)


def test_failures_are_counted_in_all_and_compared_with_the_rule_of_the_last_one() -> None:
    busy, plain = matching(RULES, Verdict("throttled")), matching(RULES, Verdict("temporary"))
    assert isinstance(decide(busy, 19, "throttled"), Plan)
    assert decide(busy, 20, "throttled") == "exhausted"
    assert isinstance(decide(plain, 4, "temporary"), Plan)
    assert decide(plain, 6, "temporary") == "exhausted"  # though five of them were of the other kind


def test_unknown_errors_have_all_attempts_of_a_rule_of_their_own() -> None:
    assert isinstance(decide(matching(Retries(unknown=BUSY), Verdict("unknown")), 19, "unknown"), Plan)
    assert decide(matching(Retries(BUSY), Verdict("unknown")), 3, "unknown") == "exhausted"


@given(st.floats(0, 86400), st.floats(0, 86400), DRAWS)
def test_what_was_asked_is_lost_to_the_deadline_only_where_it_lies_past_it(asked: float, more: float, draw: float) -> None:
    options: Any = {"failures": 1, "kind": "throttled", "uniform": lambda: draw}
    plan = next_attempt(PLAIN, asked=asked, remaining=asked + more + 0.001, **options)
    assert isinstance(plan, Plan)
    assert asked <= plan.delay < asked + more + 0.001
    assert next_attempt(PLAIN, asked=asked, remaining=asked, **options) == "deadline"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Retries(5), "rule: 5 must be"), (lambda: Retries(throttled=5), "throttled: 5"), (lambda: Retries(unknown=Retries()), "unknown: "),
        (lambda: Retries(status={5: SOON}), "status=5 must"), (lambda: Retries(status={True: SOON}), "status=True"),
        (lambda: Retries(status={503: "5s"}), "503: '5s'"), (lambda: Retries(errors={TimeoutError: 5}), r"builtins\.TimeoutError: 5"),
        (lambda: Retries(errors={int: SOON}), "errors=<class 'int'>"), (lambda: Retries(errors={"TimeoutError": SOON}), "errors='TimeoutError'"),
        (lambda: Backoff(jitter="some"), "'equal', 'decorrelated'"),
    ],
)  # fmt: skip
def test_rules_that_make_no_sense_are_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        make()

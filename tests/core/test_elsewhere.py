"""Where the next attempt runs: by what a task asks, or by its rule."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pytest

from jobwell import App, Backoff, Delays, Fixed, Retries, Retry, Tasks
from jobwell.core.elsewhere import Place, going
from jobwell.core.errors import DeclarationError
from jobwell.core.outcome import Failure, Retrying, dumped, loaded

QUEUES = ("default", "bulk", "reports")


class Named(StrEnum):
    BULK = "bulk"


class Forgetful(Retry):
    def __init__(self) -> None:
        pass


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


# rule, failures, wish, what becomes of it
TABLE: list[tuple[Any, int, Retry | None, Place]] = [
    (Fixed("1s"), 1, None, Place()),
    (Fixed("1s"), 1, Retry("x"), Place()),
    (Fixed("1s"), 1, Forgetful(), Place()),
    (Fixed("1s", queue="bulk"), 1, None, Place("bulk", None, "goes to bulk")),
    (Fixed("1s", queue="bulk"), 1, Retry("x"), Place("bulk", None, "goes to bulk")),
    (Fixed("1s", queue="default"), 1, None, Place()),  # there it is
    (Delays("1s", "2s", priority=-20), 1, None, Place(None, -20, "gets priority -20")),
    (Delays("1s", "2s", priority=0), 1, None, Place()),
    (Backoff(queue="bulk", priority=-20), 1, None, Place("bulk", -20, "goes to bulk at priority -20")),
    (Backoff(queue="bulk", from_attempt=4), 2, None, Place()),
    (Backoff(queue="bulk", from_attempt=4), 3, None, Place("bulk", None, "goes to bulk")),
    (Backoff(queue="bulk", from_attempt=4), 1, Retry(queue="reports"), Place("reports", None, "goes to reports")),
    (Backoff(queue="bulk", priority=5), 1, Retry(queue="reports"), Place("reports", 5, "goes to reports at priority 5")),
    (Backoff(queue="bulk"), 1, Retry(priority=7), Place("bulk", 7, "goes to bulk at priority 7")),
    (Backoff(queue="bulk"), 1, Retry(queue="default"), Place()),  # the task knows better than its rule
    (Fixed("1s"), 1, Retry(queue=Named.BULK), Place("bulk", None, "goes to bulk")),
    (Fixed("1s"), 1, Retry(priority=100), Place(None, 100, "gets priority 100")),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "failures", "wish", "expected"), TABLE)
def test_the_place(rule: Any, failures: int, wish: Any, expected: Place) -> None:
    found = going(rule, failures=failures, wish=wish, at_queue="default", at_rank=100, queues=QUEUES)
    assert found == expected
    assert found.queue is None or type(found.queue) is str


WISHES = [
    (Retry(queue="bluk"), "it stays in its queue: it asked for 'bluk', which the app does not declare (did it mean 'bulk'?)"),
    (Retry(queue=7), "it stays in its queue: it asked for 7, which the app does not declare"),  # type: ignore[arg-type]  as a task may
    (Retry(queue=Unshowable()), "it stays in its queue: it asked for a Unshowable, which the app does not declare"),  # type: ignore[arg-type]  as a task may
    (Retry(priority=101), "it keeps its priority: it asked for 101, which is no whole number from -100 to 100"),
    (Retry(priority=True), "it keeps its priority: it asked for True, which is no whole number from -100 to 100"),
    (Retry(priority="high"), "it keeps its priority: it asked for 'high', which is no whole number from -100 to 100"),  # type: ignore[arg-type]  as a task may
]  # fmt: skip


@pytest.mark.parametrize(("wish", "said"), WISHES)
def test_a_wish_that_cannot_be_followed_is_noted_and_its_job_stays(wish: Any, said: str) -> None:
    """Also where the rule would send it away: the task has asked for something else, so nobody guesses."""
    rule = Fixed("1s", queue="reports") if wish.queue is not None else Fixed("1s", priority=3)
    assert going(rule, failures=1, wish=wish, at_queue="default", at_rank=100, queues=QUEUES) == Place(None, None, said)


def test_half_a_wish_is_followed() -> None:
    wish = Retry(queue="bluk", priority=-5)
    found = going(Fixed("1s"), failures=1, wish=wish, at_queue="default", at_rank=100, queues=QUEUES)
    assert (found.queue, found.priority) == (None, -5)
    assert (found.note or "").startswith("gets priority -5; it stays in its queue")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Fixed("1s", queue=7), "queue=7"), (lambda: Fixed("1s", priority=101), "priority=101"),  # type: ignore[arg-type]  on purpose
        (lambda: Delays("1s", priority=True), "priority=True"), (lambda: Backoff(queue="bulk", from_attempt=1), "from_attempt=1"),
        (lambda: Backoff(from_attempt=3), "neither queue= nor priority="),
    ],
)  # fmt: skip
def test_a_rule_that_makes_no_sense_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        make()


RULES = [
    Fixed("1s", queue="bluk"), Retries(Backoff(queue="bluk")), Retries(throttled=Delays("1s", queue="bluk")),
    Retries(unknown=Fixed("1s", queue="bluk")), Retries(status={429: Fixed("1s", queue="bluk")}),
    Retries(errors={ValueError: Fixed("1s", queue="bluk")}),
]  # fmt: skip


@pytest.mark.parametrize("retry", RULES)
def test_the_queue_of_a_rule_is_declared_by_the_app(retry: Any) -> None:
    app, tasks = App("postgresql://h/d"), Tasks()
    with pytest.raises(DeclarationError, match=r"task note: retry: queue 'bluk' is not declared \(did you mean 'bulk'\?\)"):
        app.task(name="note", retry=retry)(lambda: None)

    @tasks.task(name="note", retry=retry)
    def note() -> None: ...

    with pytest.raises(DeclarationError, match="'bluk' is not declared"):
        app.include(tasks)
    App("postgresql://h/d", queues="bluk").include(tasks)


def test_it_crosses_between_processes() -> None:
    end = Retrying(1.0, Failure("E", "m", origin="limits"), "goes to bulk", "bulk", -5)
    assert loaded(dumped(end)) == end

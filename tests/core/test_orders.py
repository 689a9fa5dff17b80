"""What decides where several things were raised together."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobwell import Reject, ResourceUnavailable, Retry, Snooze
from jobwell.core.orders import deciding

NOW = datetime(2030, 1, 1, tzinfo=UTC)
AWAY = TimeoutError("nobody answered")
BUG = ValueError("it did not work")
CANCELLED = asyncio.CancelledError()
NO, NO_TOO = Reject("no_such_employee"), Reject("gone")
SOON, LATER, SOME_TIME = Retry(after=5), Retry(after=NOW + timedelta(seconds=60)), Retry()
NAP, SLEEP = Snooze(10), Snooze("1h")
SHUT = ResourceUnavailable("smtp is not to be called", resource="smtp", retry_in=3.0)
SHUT_LONGER = ResourceUnavailable("crm is not to be called", resource="crm", retry_in=30.0)


class Odd(ExceptionGroup[Exception]):
    """A group that lies about what is in it."""

    exceptions = ()  # type: ignore[assignment]  on purpose


class Unreadable(Retry):
    def __init__(self) -> None:
        super().__init__(after="tomorrow")


# what was raised together, the order that decides
ORDERS: list[tuple[list[BaseException], BaseException]] = [
    ([SHUT], SHUT), ([SHUT, SHUT_LONGER], SHUT_LONGER), ([SHUT, CANCELLED], SHUT), ([CANCELLED], CANCELLED),
    ([SOON, LATER], LATER), ([LATER, SOON], LATER), ([SOME_TIME, SOON], SOON), ([Unreadable(), SOON], SOON), ([SOME_TIME], SOME_TIME),
    ([NAP, SLEEP], SLEEP), ([NAP, CANCELLED], NAP), ([NO, NO_TOO], NO),
    ([NO, AWAY], NO), ([BUG, NO, SOON], NO),  # no retry mends it, so none is made
    ([SHUT, NAP], NAP), ([NAP, SOON], SOON), ([SHUT, SOON, NAP], SOON),
]  # fmt: skip


@pytest.mark.parametrize(("raised", "order"), ORDERS)
@pytest.mark.parametrize("deep", [False, True])
def test_orders_decide_where_there_is_no_error(raised: list[BaseException], order: BaseException, *, deep: bool) -> None:
    group = BaseExceptionGroup("several", raised)
    if deep:
        group = BaseExceptionGroup("outer", [group, BaseExceptionGroup("inner", [CANCELLED])])
    assert deciding(group, lambda: NOW).order is order


ERRORS: list[tuple[list[BaseException], list[BaseException], Any]] = [
    ([AWAY], [AWAY], None), ([SHUT, AWAY], [AWAY], None), ([SHUT, CANCELLED, BUG, AWAY], [BUG, AWAY], None), ([NAP, BUG], [BUG], None),
    ([SOON, AWAY], [AWAY], 5), ([SOON, AWAY, LATER], [AWAY], LATER.after), ([KeyboardInterrupt("x"), SHUT], [], None),
]  # fmt: skip


@pytest.mark.parametrize(("raised", "judged", "asked"), ERRORS)
def test_an_error_decides_over_orders_that_may_wait(raised: list[BaseException], judged: list[BaseException], asked: Any) -> None:
    found = deciding(BaseExceptionGroup("several", raised), lambda: NOW)
    assert found.order is None
    assert found.asked == asked
    assert isinstance(found.error, BaseExceptionGroup)
    assert list(found.error.exceptions) == (judged or [raised[0]])


@pytest.mark.parametrize("order", [SHUT, SOON, NAP, NO, CANCELLED])
def test_what_comes_alone_is_itself(order: BaseException) -> None:
    assert deciding(order, lambda: NOW).order is order


def test_an_error_alone_is_itself() -> None:
    found = deciding(BUG, lambda: NOW)
    assert (found.order, found.error, found.asked) == (None, BUG, None)


def test_a_group_that_lies_is_looked_into() -> None:
    assert deciding(Odd("several", [SHUT]), lambda: NOW).order is SHUT

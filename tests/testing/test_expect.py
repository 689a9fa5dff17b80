"""What was enqueued, what was expected, and how the difference is told."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import ANY

import pytest

from jobwell import App
from jobwell.testing import Testbed, TestbedError
from tests.testing.conftest import Shop


def test_all_that_fits(shop: Shop, bed: Testbed) -> None:
    shop.welcome.enqueue(1, branch="hr")
    shop.welcome.using(priority=5, run_after="2h").enqueue(2, "en")
    at = datetime(2031, 1, 1, tzinfo=UTC)
    shop.pay.using(run_after=at).enqueue(3)
    bed.assert_enqueued()
    bed.assert_enqueued(count=3)
    bed.assert_enqueued(shop.welcome, count=2)
    bed.assert_enqueued("welcome", {"locale": "en"}, count=1)
    bed.assert_enqueued(shop.welcome, {"employee_id": ANY}, queue="notifications", tenant="hr", priority=0, count=1)
    bed.assert_enqueued(shop.welcome, {"employee_id": pytest.approx(2.0)}, run_after="2h", priority=5, state="scheduled")
    bed.assert_enqueued(shop.welcome, run_after=timedelta(hours=2), count=1)
    bed.assert_enqueued(shop.pay, lambda args: args["n"] > 2, run_after=at)
    bed.assert_enqueued(shop.pay, count=1, state="scheduled")
    (job,) = bed.assert_enqueued(shop.welcome, {"employee_id": 1})
    assert (job.args, job.tenant) == ({"employee_id": 1, "branch": "hr"}, "hr")
    bed.refute_enqueued(shop.welcome, {"employee_id": 4})
    bed.refute_enqueued(shop.order)
    assert [job.args["employee_id"] for job in bed.enqueued(shop.welcome)] == [1, 2]
    assert bed.enqueued(shop.welcome, tenant="it") == []


def test_jobs_that_have_run_were_enqueued_too(shop: Shop, bed: Testbed) -> None:
    shop.order.enqueue(1)
    bed.drain()
    bed.assert_enqueued(shop.pay, {"n": 1}, count=1)
    with pytest.raises(AssertionError):
        bed.refute_enqueued(shop.pay)
    bed.refute_enqueued(shop.pay, state="ready")


def told(call: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        call()
    return str(caught.value)


def test_the_nearest_come_first_with_their_differences(shop: Shop, bed: Testbed) -> None:
    shop.welcome.enqueue(1, "en")
    shop.welcome.enqueue(8, "en")
    shop.pay.enqueue(5)
    said = told(lambda: bed.assert_enqueued(shop.welcome, {"employee_id": 8, "locale": "kk"}, queue="notifications"))
    assert said.splitlines() == [
        "expected at least one of welcome with employee_id=8, locale='kk', queue='notifications'; enqueued: none",
        "  welcome(employee_id=8, locale='en') ready queue=notifications",
        "      locale: expected 'kk', was 'en'",
        "  welcome(employee_id=1, locale='en') ready queue=notifications",
        "      employee_id: expected 8, was 1",
        "      locale: expected 'kk', was 'en'",
        "  of other tasks: pay (1)",
    ]


def test_counts_types_times_and_missing_arguments(shop: Shop, bed: Testbed) -> None:
    shop.pay.enqueue(1)
    assert told(lambda: bed.assert_enqueued(shop.pay, count=2)).splitlines() == [
        "expected 2 of pay; enqueued: 1",
        "  fits: pay(n=1) ready queue=default",
    ]
    assert told(lambda: bed.assert_enqueued(shop.pay, count=0)).startswith("expected 0 of pay; enqueued: 1")
    assert "n: expected '1', was 1 (str, int)" in told(lambda: bed.assert_enqueued(shop.pay, {"n": "1"}))
    assert "act: expected 'x', was not given" in told(lambda: bed.assert_enqueued(shop.pay, {"act": "x"}))
    assert "due: expected " in told(lambda: bed.assert_enqueued(shop.pay, run_after="1h"))
    assert "does not accept them" in told(lambda: bed.assert_enqueued(shop.pay, lambda args: False))
    assert "expected none of pay; enqueued: 1\n  pay(n=1) ready" in told(lambda: bed.refute_enqueued(shop.pay))


@dataclass
class Invoice:
    number: str
    lines: list[dict[str, Decimal]]


def test_values_show_where_they_differ(app: App, bed: Testbed) -> None:
    @app.task(name="send")
    def send(rows: list[str], text: str, invoice: Invoice) -> None: ...

    rows, text = [f"row {n}" for n in range(30)], "one\ntwo\n" * 9
    invoice = Invoice("A1", [{"amount": Decimal("1.50")}, {"amount": Decimal(2)}])
    send.enqueue(rows, text, invoice)

    def differs(**args: Any) -> list[str]:
        return [line.strip() for line in told(lambda: bed.assert_enqueued(send, args)).splitlines()[2:]]

    assert differs(rows=[*rows[:7], "row x", *rows[8:]]) == ["rows[7]: expected 'row x', was 'row 7'"]
    assert differs(rows=rows[1:]) == ["rows: - expected, + was", "+ 'row 0'"]
    assert differs(text=text + "three") == ["text: - expected, + was", "- three"]
    other = Invoice("A1", [{"amount": Decimal("1.51")}, {"amount": Decimal(2), "tax": Decimal(1)}])
    assert differs(invoice=other) == [
        "invoice.lines[0].amount: expected Decimal('1.51'), was Decimal('1.50')",
        "invoice.lines[1].tax: expected Decimal('1'), was nothing",
    ]


def test_nothing_at_all(shop: Shop, bed: Testbed, conn: Any) -> None:
    assert "nothing at all was enqueued (in a transaction that has not committed" in told(lambda: bed.assert_enqueued(shop.pay))


def test_many_are_cut(shop: Shop, bed: Testbed, app: App) -> None:
    app.enqueue_many(shop.pay.job(n) for n in range(50))
    said = told(lambda: bed.assert_enqueued(shop.pay, {"n": 99}))
    assert len(said.splitlines()) == 12
    assert "… and 45 more" in said


def test_a_slip_of_the_pen_is_no_success(shop: Shop, bed: Testbed) -> None:
    with pytest.raises(TestbedError, match="the app has no task 'welcom'; did you mean 'welcome'"):
        bed.refute_enqueued("welcom")
    with pytest.raises(TestbedError, match="is no task; give what"):
        bed.refute_enqueued(print)  # type: ignore[arg-type]


def test_unknown_jobs(shop: Shop, bed: Testbed) -> None:
    import uuid

    from jobwell import NotFound

    with pytest.raises(NotFound):
        bed.job(uuid.uuid4())

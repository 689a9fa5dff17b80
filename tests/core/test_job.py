"""A job before it is stored: its time, tenant, lock key and size."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell import EnqueueError, InvalidArguments, Lock, PayloadTooLarge, Tasks
from jobwell.core import job as jobs
from jobwell.core.errors import DeclarationError
from jobwell.core.job import NewJob, Options, moment
from jobwell.core.task import TaskSpec
from tests.samples import Level

NINE = datetime(2026, 1, 28, 9, 0, tzinfo=UTC)


def spec_of(fn: Any, **options: Any) -> TaskSpec:
    return Tasks().task(name="hr.notify", **options)(fn).spec  # type: ignore[no-any-return]


def notify(employee_id: int, department: Any = None, text: str = "") -> None: ...


def make(spec: TaskSpec, *args: Any, limit: int = 256 * 1024, options: Options = jobs.PLAIN, **kwargs: Any) -> NewJob:
    return jobs.make(spec, args, kwargs, options, limit)


# --- run_after (case F10) ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, (0.0, None)), ("10m", (600.0, None)), (600, (600.0, None)), (0, (0.0, None)), (timedelta(hours=1), (3600.0, None)),
        (NINE, (0.0, NINE)), (datetime(2026, 1, 28, 14, 0, tzinfo=ZoneInfo("Asia/Almaty")), (0.0, NINE)),
        (datetime(2026, 1, 28, 4, 0, tzinfo=ZoneInfo("America/New_York")), (0.0, NINE)),
        (datetime(2026, 1, 28, 14, 45, tzinfo=timezone(timedelta(hours=5, minutes=45))), (0.0, NINE)),
        ("2026-01-28T09:00:00Z", (0.0, NINE)), ("2026-01-28T14:00+05:00", (0.0, NINE)), ("2026-01-28 09:00:00.000000+00:00", (0.0, NINE)),
        (datetime(2025, 10, 26, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")), (0.0, datetime(2025, 10, 26, 0, 30, tzinfo=UTC))),
        (datetime(2025, 10, 26, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")), (0.0, datetime(2025, 10, 26, 1, 30, tzinfo=UTC))),
    ],
)  # fmt: skip
def test_run_after_is_a_delay_or_a_moment_in_utc(value: Any, expected: tuple[float, datetime | None]) -> None:
    delay, at = moment(value)
    assert (delay, at) == expected
    assert at is None or at.tzinfo is UTC


@pytest.mark.parametrize("value", [datetime(2026, 1, 28, 9), "2026-01-28T09:00:00", "2026-01-28 09:00", "2026-01-28"])
def test_a_time_without_a_zone_is_refused_with_advice(value: Any) -> None:
    with pytest.raises(DeclarationError, match="has no time zone, .*give an aware datetime"):
        moment(value)


@pytest.mark.parametrize(
    "value",
    ["tomorrow", "2026-13-01T00:00Z", "2026-01-28T09:00 Europe/Berlin", "", -1, True, "11y", 3661 * 86400, date(2026, 1, 28),
     datetime(2200, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
     datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), float("nan")],
)  # fmt: skip
def test_a_time_that_cannot_be_read_or_is_absurd_is_refused(value: Any) -> None:
    with pytest.raises(DeclarationError, match="run_after="):
        moment(value)


@given(st.datetimes(datetime(1970, 1, 2), datetime(2199, 12, 30), timezones=st.timezones()))
def test_an_aware_time_keeps_its_moment(value: datetime) -> None:
    assert moment(value) == (0.0, value.astimezone(UTC))
    assert moment(value.isoformat()) == (0.0, value.astimezone(UTC))


# --- options -------------------------------------------------------------------------------------------------------------


def test_the_declaration_is_the_default_and_options_win() -> None:
    spec = spec_of(notify, priority=10, deadline="2h", queue="bulk")
    job = make(spec, 7)
    assert (job.task, job.queue, job.rank, job.gate, job.deadline) == ("hr.notify", "bulk", 90, spec.gate, 7200)
    assert (job.tenant, job.lock_key, job.delay, job.run_at, job.args) == ("", "", 0.0, None, '{"employee_id":7}')
    other = make(spec, 7, options=Options(run_after="1m", priority=-5, tenant="finance", deadline="1h"))
    assert (other.delay, other.rank, other.tenant, other.deadline) == (60.0, 105, "finance", 3600)
    assert other.id != job.id


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(run_after=datetime(2026, 1, 1)), "hr.notify: run_after='2026-01-01T00:00:00' has no time zone"),
        (Options(priority=101), "hr.notify: priority=101 must be"), (Options(deadline="late"), "hr.notify: deadline='late'"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_an_enqueue_error_that_names_the_task(options: Options, said: str) -> None:
    with pytest.raises(EnqueueError, match=said) as refused:
        make(spec_of(notify), 1, options=options)
    assert refused.value.message.endswith("; nothing was enqueued")


# --- the tenant ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"), [("finance", "finance"), (7, "7"), (None, ""), (UUID(int=1), str(UUID(int=1))), ("x" * 200, "x" * 200)]
)
def test_the_tenant_is_the_text_of_the_named_parameter(value: Any, expected: str) -> None:
    assert make(spec_of(notify, tenant="department"), 1, department=value).tenant == expected


def test_the_tenant_of_a_default_counts_and_options_win() -> None:
    def at(branch: str = "almaty") -> None: ...

    assert make(spec_of(at, tenant="branch")).tenant == "almaty"
    assert make(spec_of(at, tenant="branch"), options=Options(tenant="astana")).tenant == "astana"
    assert make(spec_of(at, tenant="branch"), options=Options(tenant="")).tenant == ""


@pytest.mark.parametrize("value", ["x" * 201, "a\x00", "\ud800", "\U0010ffff"])
def test_a_tenant_that_cannot_be_stored_is_refused(value: str) -> None:
    with pytest.raises(InvalidArguments, match=r"hr\.notify: tenant: ") as refused:
        make(spec_of(notify), 1, options=Options(tenant=value))
    assert refused.value.path == "tenant"


# --- the lock key --------------------------------------------------------------------------------------------------------


def lock_key(fn: Any, *by: str, **kwargs: Any) -> str:
    return make(spec_of(fn, lock=Lock(*by)), **kwargs).lock_key


def test_a_short_lock_key_can_be_read() -> None:
    assert lock_key(notify, "employee_id", employee_id=7) == 'hr.notify:{"employee_id":7}'


def test_a_long_lock_key_is_a_hash() -> None:
    key = lock_key(notify, "text", employee_id=1, text="x" * 1000)
    assert len(key) == len("hr.notify:") + 32
    assert key != lock_key(notify, "text", employee_id=1, text="x" * 1001)


def test_the_lock_key_depends_on_the_named_values_only() -> None:
    assert lock_key(notify, "employee_id", employee_id=7, text="a") == lock_key(notify, "employee_id", employee_id=7, text="b")
    assert lock_key(notify, "employee_id", employee_id=7) != lock_key(notify, "employee_id", employee_id=8)
    assert lock_key(notify, "employee_id", "text", employee_id=7) == lock_key(
        notify, "text", "employee_id", employee_id=7, text=""
    )


@pytest.mark.parametrize(
    ("hint", "one", "same"),
    [
        (dict[str, Any], {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}), (set[str], {"a", "b", "c"}, {"c", "b", "a"}),
        (set[frozenset[str]], {frozenset("az"), frozenset("by")}, {frozenset("yb"), frozenset("za")}), (float, 1, 1.0), (int, "7", 7),
    ],
)  # fmt: skip
def test_equal_values_have_equal_lock_keys(hint: Any, one: Any, same: Any) -> None:
    def task(x: Any) -> None: ...

    task.__annotations__ = {"x": hint}
    assert lock_key(task, "x", x=one) == lock_key(task, "x", x=same)


# --- the size (case H4) --------------------------------------------------------------------------------------------------


def test_arguments_up_to_the_limit_are_taken_and_a_byte_more_is_refused() -> None:
    spec = spec_of(notify)
    shell = make(spec, 1, text="").size
    fits = make(spec, 1, text="x" * (256 * 1024 - shell))
    assert fits.size == 256 * 1024
    with pytest.raises(
        PayloadTooLarge, match=r"hr\.notify: the arguments take 262,145 bytes, the limit is 262,144; nothing was enqueued"
    ) as refused:
        make(spec, 1, text="x" * (256 * 1024 - shell + 1))
    assert "pass its id, path or URL" in refused.value.message


def test_the_size_is_in_bytes_and_not_in_characters() -> None:
    with pytest.raises(PayloadTooLarge):
        make(spec_of(notify), 1, text="ж" * 600, limit=1024)


def test_a_hundred_megabytes_are_refused() -> None:
    with pytest.raises(PayloadTooLarge, match="100,000,"):
        make(spec_of(notify), 1, text="x" * 100_000_000)


def test_enum_arguments_may_be_tenants() -> None:
    def task(level: Level) -> None: ...

    assert make(spec_of(task, tenant="level"), Level.HIGH).tenant == "9"

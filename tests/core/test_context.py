"""What a task is told about its attempt."""

import logging

import pytest

from jobwell import Context, SyncContext
from jobwell.core.ids import new_id


@pytest.mark.parametrize("kind", [Context, SyncContext])
def test_a_local_context_is_a_first_attempt_without_a_deadline(kind: type[Context]) -> None:
    ctx = kind.local("shop.notify")
    assert type(ctx) is kind
    assert (ctx.task, ctx.attempt, ctx.remaining(), ctx.cancelled) == ("shop.notify", 1, None, False)
    assert ctx.idempotency_key == str(ctx.id)


def test_what_remains_shrinks_with_the_clock_and_stops_at_zero() -> None:
    now = [100.0]
    ctx = Context(
        id=new_id(), task="t", queue="q", tenant="", attempt=2, deadline_in=5.0, monotonic=lambda: now[0]
    )  # fmt: skip
    assert ctx.remaining() == 5.0
    now[0] = 103.0
    assert ctx.remaining() == 2.0
    now[0] = 200.0
    assert ctx.remaining() == 0.0


def test_the_logger_carries_the_job(caplog: pytest.LogCaptureFixture) -> None:
    ctx = SyncContext.local("shop.notify")
    with caplog.at_level(logging.INFO):
        ctx.logger.info("sent %s", 3)
    (record,) = caplog.records
    assert (record.name, record.getMessage()) == ("jobwell.task.shop.notify", "sent 3")
    assert record.__dict__["job"] == str(ctx.id)
    assert record.__dict__["attempt"] == 1

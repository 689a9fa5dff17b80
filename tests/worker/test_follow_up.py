"""`on_failed=`: the task that follows a final failure, whatever way it comes."""

from datetime import timedelta
from typing import Any

import pytest

from jobwell import App, DeclarationError, FailedJob, Fixed, Lock, Reject, Tasks
from jobwell.client.task import Task
from jobwell.core.ids import new_id
from jobwell.testing import Testbed
from tests.waiting import auntil
from tests.worker.helpers import Desk, working

OPTIONS = {"name": "pay", "retry": Fixed("0s", attempts=2), "tenant": "of"}


@pytest.fixture
def heard() -> list[FailedJob]:
    return []


@pytest.fixture
def pay(app: App, heard: list[FailedJob]) -> Task[[str, str], Any]:
    @app.task(name="told", queue="notifications", priority=50, deadline="3h", version=2, upgrades={})
    def told(failed: FailedJob) -> None:
        heard.append(failed)

    @app.task(on_failed=told, **OPTIONS)
    async def pay(how: str, of: str) -> None:
        if how == "reject":
            raise Reject("no_such_account", 'account "7" is gone\nя')
        if how == "fail":
            raise ConnectionError("x" * 3000)

    return pay


def test_a_rejected_job_is_told_with_all_that_is_known(bed: Testbed, pay: Task[[str, str], Any], heard: list[FailedJob]) -> None:
    with bed.app.correlate(request_id="r1"):
        job = pay.enqueue("reject", "acme")
    bed.drain(until_empty=True)
    (failed,) = heard
    assert (failed.id, failed.task, failed.queue, failed.tenant) == (job.id, "pay", "default", "acme")
    assert (failed.reason, failed.code, failed.error_type) == ("rejected", "no_such_account", "Reject")
    assert (failed.message, failed.attempt, failed.failures) == ('account "7" is gone\nя', 1, 1)
    assert timedelta() <= failed.failed_at - failed.enqueued_at < timedelta(minutes=1)
    (follow,) = bed.jobs("told")
    assert (follow.queue, follow.tenant, follow.meta) == ("notifications", "acme", {"request_id": "r1"})


def test_each_final_failure_once_and_success_never(bed: Testbed, pay: Task[[str, str], Any], heard: list[FailedJob]) -> None:
    pay.enqueue("well", "a")
    pay.enqueue("fail", "b")
    bed.drain(retries=True)
    assert [(one.reason, one.attempt, len(one.message)) for one in heard] == [("exhausted", 2, 1000)]


async def test_in_one_transaction_with_the_failure_by_a_worker(
    app: App, desk: Desk, pay: Task[[str, str], Any], heard: list[FailedJob]
) -> None:
    jobs = [pay.enqueue("reject", str(n)).id for n in range(20)]
    async with working(app):
        await auntil(lambda: len(heard) == 20)
    assert {one.id for one in heard} == set(jobs)
    assert desk.one("select count(*) from quarantine") == 20


async def test_a_failure_that_the_store_decides(app: App, desk: Desk, pay: Task[[str, str], Any], heard: list[FailedJob]) -> None:
    """Whoever writes into the quarantine: here a job of a lost worker, and what was rolled back is not told."""
    async with working(app):
        pass  # it has told what follows
    kept = (
        "enqueued_at, run_at, deadline, gate, rank, attempt, failures, crashes, losses, postponements, bytes, queue, task, tenant,"
        " lock_key"
    )
    put = f"insert into quarantine (id, {kept}, reason, fingerprint) select %s, {kept}, 'lost', 'x' from jobs where id = %s"
    job = pay.enqueue("well", "acme").id
    with pytest.raises(ZeroDivisionError), desk.conn.transaction():
        desk.conn.execute(put, [new_id(), job])
        raise ZeroDivisionError
    assert desk.one("select count(*) from jobs where task = 'told'") == 0
    lost = new_id()
    desk.conn.execute(put, [lost, job])
    async with working(app):
        await auntil(lambda: heard)
    assert [(one.id, one.reason, one.error_type, one.message) for one in heard] == [(lost, "lost", None, "")]


async def test_a_release_that_follows_no_more_is_believed(
    app: App, desk: Desk, pay: Task[[str, str], Any], heard: list[FailedJob]
) -> None:
    async with working(app):
        pass
    assert desk.one("select follow_up ->> 'task' from gates where task = 'pay' limit 1") == "told"
    later = App(app.settings.database_url, schema=app.settings.schema)

    @later.task(**OPTIONS)
    async def pay_alone(how: str, of: str) -> None:
        raise Reject("no", how)

    async with working(later):
        pass
    later.close()
    assert desk.one("select count(*) from gates where task = 'pay' and follow_up is not null") == 0


def test_what_cannot_follow_is_refused(app: App) -> None:
    @app.task
    def two(failed: FailedJob, more: int) -> None: ...

    @app.task(lock=Lock("failed"))
    def locked(failed: FailedJob) -> None: ...

    for wrong, why in ((two, "has 2"), (locked, "no tenant or lock"), ("told", "must be a task")):
        with pytest.raises(DeclarationError, match=why):
            app.task(name="asks", on_failed=wrong)(lambda: None)


@pytest.mark.parametrize("why", ["annotate its parameter: failed: FailedJob", "belongs to another app"])
def test_what_is_seen_when_all_is_declared(app: App, why: str) -> None:
    apart = Tasks()

    @apart.task(name="strange")
    def strange(failed: FailedJob) -> None: ...

    @app.task(name="wrong")
    def wrong(failed: str) -> None: ...

    @app.task(name="asks", on_failed=strange if "another" in why else wrong)
    def asks() -> None: ...

    with pytest.raises(DeclarationError, match=why):
        app.limits_declared()

"""`ctx.step`: what was done is done once, what is not known is not repeated blindly."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from jobwell import (
    App,
    CannotTell,
    Context,
    DeclarationError,
    DidNotHappen,
    Fixed,
    Happened,
    Reject,
    Retry,
    StoreUnavailable,
    SyncContext,
)
from jobwell.store import steps as stored
from jobwell.store.statements import run
from jobwell.testing import Testbed
from tests.waiting import apause, auntil
from tests.worker.helpers import Desk, working

AGAIN = Fixed("0s", attempts=3)


@dataclass
class Receipt:
    number: int
    amount: Decimal


class Bank:
    """The outside system: what has happened there, and what it answers."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.keys: list[str] = []
        self.errors: list[Exception] = []
        self.threads: set[int] = set()

    def pay(self, amount: Decimal, idempotency_key: str) -> Receipt:
        self.threads.add(threading.get_ident())
        return self._pay(amount, idempotency_key)

    async def apay(self, amount: Decimal, *, idempotency_key: str) -> Receipt:
        return self._pay(amount, idempotency_key)

    def _pay(self, amount: Decimal, key: str) -> Receipt:
        self.keys.append(key)
        if self.errors:
            error = self.errors.pop(0)
            if not isinstance(error, Reject | ConnectionRefusedError):
                self.done.append(amount)
            raise error
        self.done.append(amount)
        return Receipt(len(self.done), amount)


@pytest.fixture
def bank() -> Bank:
    return Bank()


def rows(desk: Desk, job: Any) -> list[dict[str, Any]]:
    return run(desk.conn, stored.of_job(desk.app.database.statements, job.id))


def states(desk: Desk, job: Any) -> list[tuple[str, str]]:
    return [(row["name"], row["state"]) for row in rows(desk, job)]


@pytest.mark.parametrize("colour", ["async", "plain in async", "plain"])
async def test_a_second_attempt_gets_what_was_done(app: App, desk: Desk, bank: Bank, colour: str) -> None:
    tries = []

    if colour == "plain":

        @app.task(name="pay", retry=AGAIN)
        def pay(ctx: SyncContext, amount: Decimal) -> Receipt:
            receipt = ctx.step("pay", bank.pay, amount)
            tries.append(receipt)
            if ctx.attempt < 3:
                raise Retry
            return receipt

    else:
        fn: Any = bank.pay if colour == "plain in async" else bank.apay

        @app.task(name="pay", retry=AGAIN)
        async def pay(ctx: Context, amount: Decimal) -> Receipt:
            receipt: Receipt = await ctx.step("pay", fn, amount)
            tries.append(receipt)
            if ctx.attempt < 3:
                raise Retry
            return receipt

    async with working(app):
        job = pay.enqueue(Decimal("1.50"))
        await desk.end(job)
    assert desk.state(job) == "succeeded"
    assert tries == [Receipt(1, Decimal("1.50"))] * 3
    assert (bank.done, bank.keys) == ([Decimal("1.50")], [f"{job.id}:pay"])
    assert threading.get_ident() not in bank.threads
    (row,) = rows(desk, job)
    assert (row["state"], row["attempt"], row["unknown"], row["kept"]) == ("done", 1, "repeat", True)


# --- what is not known -----------------------------------------------------------------------------------------------------


def asked(answers: list[Any]) -> Callable[..., Any]:
    async def ask(*_: Any, **__: Any) -> Any:
        return answers.pop(0)

    return ask


def payer(app: App, bank: Bank, unknown: Any, **options: Any) -> Any:
    @app.task(name="pay", **{"retry": AGAIN} | options)
    async def pay(ctx: Context, amount: Decimal) -> int:
        receipt = await ctx.step("pay", bank.apay, amount, unknown=unknown)
        return receipt.number

    return pay


def test_repeated(bed: Testbed, bank: Bank) -> None:
    bank.errors = [TimeoutError("nobody answered")]
    job = payer(bed.app, bank, "repeat").enqueue(Decimal(5))
    bed.drain(retries=True)
    assert (bank.done, bed.job(job).result) == ([Decimal(5)] * 2, 2)
    assert set(bank.keys) == {f"{job.id}:pay"}


def test_held_and_the_question_says_what_is_known(bed: Testbed, desk: Desk, bank: Bank) -> None:
    bank.errors = [TimeoutError("nobody answered")]
    job = payer(bed.app, bank, "hold").enqueue(Decimal(5))
    bed.drain(retries=True)
    found = desk.job(job)
    assert (found["reason"], found["error_type"], bank.done) == ("held", "StepHeld", [Decimal(5)])
    for told in (
        "step 'pay' was begun by attempt 1 at ", "Bank.apay(5)", f"with the key {job.id}:pay", "TimeoutError: nobody answered",
        f"`jobwell steps answer {job.id} pay --happened [--result JSON]`", "--did-not-happen",
    ):  # fmt: skip
        assert told in found["message"]
    assert found["failures"] == 1  # the time-out; to be held is no failure
    assert states(desk, job) == [("pay", "started")]


def test_held_whatever_the_code_makes_of_it(bed: Testbed, desk: Desk, bank: Bank) -> None:
    more = []

    @bed.app.task(name="deaf", retry=AGAIN)
    async def deaf(ctx: Context) -> str:
        if ctx.attempt == 1:
            await ctx.step("pay", bank.apay, Decimal(1), unknown="hold")
        try:
            await ctx.step("pay", bank.apay, Decimal(1), unknown="hold")
        except BaseException:  # noqa: BLE001  the worst that code can do
            with pytest.raises(BaseException, match="step 'pay'"):
                await ctx.step("more", more.append, 1)
        return "well"

    bank.errors = [TimeoutError()]
    job = deaf.enqueue()
    bed.drain(retries=True)
    assert (desk.job(job)["reason"], bank.done, more) == ("held", [Decimal(1)], [])


def test_the_outside_system_is_asked(bed: Testbed, bank: Bank) -> None:
    bank.errors = [TimeoutError()]
    job = payer(bed.app, bank, asked([Happened(Receipt(7, Decimal(5)))])).enqueue(Decimal(5))
    bed.drain(retries=True)
    assert (bank.done, bed.job(job).result) == ([Decimal(5)], 7)


def test_asked_it_did_not_happen(bed: Testbed, bank: Bank) -> None:
    bank.errors = [TimeoutError()]
    bank.done = []
    job = payer(bed.app, bank, asked([DidNotHappen()])).enqueue(Decimal(5))
    bed.drain(retries=True)
    assert (len(bank.keys), bed.job(job).state) == (2, "succeeded")


def test_asked_it_cannot_tell(bed: Testbed, desk: Desk, bank: Bank) -> None:
    bank.errors = [TimeoutError()]
    job = payer(bed.app, bank, asked([CannotTell("its list is of yesterday")])).enqueue(Decimal(5))
    bed.drain(retries=True)
    found = desk.job(job)
    assert (found["reason"], len(bank.keys)) == ("held", 1)
    assert "cannot tell: its list is of yesterday" in found["message"]


def test_asked_it_answers_nonsense(bed: Testbed, desk: Desk, bank: Bank) -> None:
    bank.errors = [TimeoutError()]
    job = payer(bed.app, bank, asked([True, True])).enqueue(Decimal(5))
    bed.drain(retries=True)
    assert (desk.job(job)["error_type"], len(bank.keys)) == ("jobwell.core.errors.DeclarationError", 1)
    assert states(desk, job) == [("pay", "started")]


@pytest.mark.parametrize("error", [Reject("closed", "the account is closed"), ConnectionRefusedError()])
def test_what_certainly_did_not_happen_is_done_again(bed: Testbed, desk: Desk, bank: Bank, error: Exception) -> None:
    bank.errors = [error]
    job = payer(bed.app, bank, "hold").enqueue(Decimal(5))
    bed.drain(retries=True)
    if isinstance(error, Reject):
        assert (desk.job(job)["reason"], states(desk, job)) == ("rejected", [])
        bed.app.database.run(_retried(bed.app, job))
        bed.drain(retries=True)
    assert (desk.state(job), bank.done) == ("succeeded", [Decimal(5)])


def _retried(app: App, job: Any) -> Any:
    from jobwell.core.filters import Selection
    from jobwell.store import quarantine

    return quarantine.retry(app.database.statements, Selection(ids=[job.id]))


def test_steps_and_keys_are_stable_over_retries_from_the_quarantine(bed: Testbed, desk: Desk, bank: Bank) -> None:
    keys, well = [], []

    @bed.app.task(name="pay", retry=Fixed("0s", attempts=1))
    async def pay(ctx: Context) -> int:
        receipt = await ctx.step("pay", bank.apay, Decimal(5), unknown="hold")
        keys.append((ctx.idempotency_key, ctx.step_key("mail")))
        if not well:
            raise Reject("later", "not yet")
        return receipt.number

    job = pay.enqueue()
    for _ in range(3):
        bed.drain()
        assert desk.job(job)["reason"] == "rejected"
        bed.app.database.run(_retried(bed.app, job))
    well.append(True)
    bed.drain()
    assert (desk.state(job), bank.done) == ("succeeded", [Decimal(5)])
    assert keys == [(str(job.id), f"{job.id}:mail")] * 4


# --- names, options, results -------------------------------------------------------------------------------------------------


def test_a_name_used_twice_is_refused_and_not_called(bed: Testbed, desk: Desk) -> None:
    sent: list[int] = []

    @bed.app.task(name="mails")
    async def mails(ctx: Context) -> None:
        for n in range(2):
            await ctx.step("mail", sent.append, n)

    job = mails.enqueue()
    bed.drain()
    assert (desk.job(job)["error_type"], sent) == ("jobwell.core.errors.DeclarationError", [0])
    assert "has made the step 'mail' in this attempt already" in desk.job(job)["message"]


@pytest.mark.parametrize(
    ("name", "fn", "options", "said"),
    [
        ("", print, {}, "its name must be a text of 1 to 200 characters"),
        ("a\0b", print, {}, "its name must be a text"),
        ("a", 7, {}, "7 cannot be called"),
        ("a", print, {"unknown": "hope"}, "unknown='hope' must be 'repeat', 'hold' or a function"),
        ("a", print, {"compensate": print}, "must be a declared task"),
    ],
)
async def test_what_is_declared_wrongly(name: Any, fn: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        await Context.local("t").step(name, fn, **options)


def test_an_async_function_in_a_plain_task_is_refused() -> None:
    async def send() -> None:
        """Never called."""

    with pytest.raises(DeclarationError, match="send is an async function, and this task is a plain one"):
        SyncContext.local("t").step("mail", send)


async def test_called_directly_a_task_only_calls(bank: Bank) -> None:
    ctx = Context.local("t")
    assert await ctx.step("pay", bank.apay, Decimal(1)) == await ctx.step("plain", bank.pay, Decimal(1)) or True
    assert bank.keys == [f"{ctx.id}:pay", f"{ctx.id}:plain"]
    assert SyncContext.local("t").step("pay", bank.pay, Decimal(1), idempotency_key="mine").number == 3
    assert bank.keys[-1] == "mine"


def test_a_result_that_cannot_be_stored_is_asked_of_a_person_when_it_is_needed_again(bed: Testbed, desk: Desk) -> None:
    calls = []

    def call() -> object:
        calls.append(1)
        return object()

    @bed.app.task(name="odd", retry=AGAIN)
    async def odd(ctx: Context) -> str:
        got = await ctx.step("odd", call)
        if ctx.attempt == 1:
            raise Retry
        return str(got)

    job = odd.enqueue()
    bed.drain(retries=True)
    assert (desk.job(job)["reason"], calls) == ("held", [1])
    assert "is done, and what it returned cannot be given again: its result could not be stored" in desk.job(job)["message"]
    (row,) = rows(desk, job)
    assert (row["state"], row["kept"], row["result"]) == ("done", False, None)


def test_nothing_that_counts_is_nothing_to_store(bed: Testbed, desk: Desk) -> None:
    def call() -> None:
        return object()  # type: ignore[return-value]  # what it says counts, not what it does

    @bed.app.task(name="odd", retry=AGAIN)
    async def odd(ctx: Context) -> str:
        got = await ctx.step("odd", call)
        if ctx.attempt == 1:
            raise Retry
        return str(got)

    job = odd.enqueue()
    bed.drain(retries=True)
    assert bed.job(job).result == "None"


async def test_a_step_is_left_begun_where_its_attempt_is_stopped(app: App, desk: Desk) -> None:
    begun = asyncio.Event()

    @app.task(name="slow", timeout="300ms", retry=Fixed("0s", attempts=2))
    async def slow(ctx: Context) -> None:
        await ctx.step("slow", wait_for_ever, unknown="hold")

    async def wait_for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with working(app):
        job = slow.enqueue()
        await auntil(begun.is_set)
        await desk.end(job)
    assert desk.job(job)["reason"] == "held"
    assert states(desk, job) == [("slow", "started")]


async def test_an_attempt_that_has_lost_its_job_writes_and_calls_nothing(app: App, desk: Desk) -> None:
    """Case G13: the steps of an old attempt are refused."""
    came, go, over = threading.Event(), threading.Event(), threading.Event()
    called = []

    @app.task(name="old", retry=AGAIN)
    def old(ctx: SyncContext) -> None:
        try:
            ctx.step("first", called.append, "first")
            came.set()
            assert go.wait(10)
            ctx.step("second", called.append, "second")
        finally:
            over.set()

    async with working(app):
        job = old.enqueue()
        await auntil(came.is_set)
        desk.conn.execute("update jobs set claim_id = gen_random_uuid() where id = %s", [job.id])
        go.set()
        await auntil(over.is_set)
        assert desk.state(job) == "running"  # and nothing was written of its end
        desk.conn.execute("delete from jobs")
    assert (called, states(desk, job)) == (["first"], [("first", "done")])


# --- the store away ----------------------------------------------------------------------------------------------------------


class Deaf:
    """Connections whose answers are lost: what was asked for has taken effect, each first time."""

    def __init__(self, app: App) -> None:
        self.lost = 0
        self._of_loop, self._plain = app.client.connections.of_loop, app.client.connections.plain

    @contextlib.asynccontextmanager
    async def of_loop(self) -> AsyncIterator[Any]:
        async with self._of_loop() as conn:
            yield conn
        self._lose()

    @contextlib.contextmanager
    def plain(self) -> Iterator[Any]:
        with self._plain() as conn:
            yield conn
        self._lose()

    def _lose(self) -> None:
        self.lost += 1
        if self.lost % 2:
            raise StoreUnavailable("the answer is lost", unsure=True)


@pytest.mark.parametrize("plain", [False, True])
async def test_an_answer_that_is_lost_repeats_nothing(
    app: App, desk: Desk, bank: Bank, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:

        @app.task(name="pay", retry=Fixed("0s", attempts=1))
        def pay(ctx: SyncContext) -> int:
            return ctx.step("pay", bank.pay, Decimal(5), unknown="hold").number

    else:

        @app.task(name="pay", retry=Fixed("0s", attempts=1))
        async def pay(ctx: Context) -> int:
            return (await ctx.step("pay", bank.apay, Decimal(5), unknown="hold")).number

    job = pay.enqueue()
    deaf = Deaf(app)
    monkeypatch.setattr(app.client.connections, "of_loop", deaf.of_loop)
    monkeypatch.setattr(app.client.connections, "plain", deaf.plain)
    async with working(app):
        await desk.end(job)
    assert (desk.state(job), bank.done, deaf.lost) == ("succeeded", [Decimal(5)], 4)
    assert states(desk, job) == [("pay", "done")]


def test_what_has_happened_is_written_though_the_attempt_is_stopped_right_then(bed: Testbed, desk: Desk, bank: Bank) -> None:
    async def last_moment() -> Receipt:
        receipt = await bank.apay(Decimal(5), idempotency_key="")
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return receipt

    @bed.app.task(name="pay", retry=AGAIN)
    async def pay(ctx: Context) -> int:
        return (await ctx.step("pay", last_moment, unknown="hold")).number

    job = pay.enqueue()
    bed.drain(retries=True)
    assert (desk.outcomes(job), desk.state(job), bank.done) == (["retrying", "succeeded"], "succeeded", [Decimal(5)])


def test_told_to_stop_an_attempt_begins_no_further_step(bed: Testbed, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def stop(point: str, step: Any, attempt: Any) -> None:
        if (point, step.name) == ("begun", "b"):
            attempt.stopped = "cancelled"

    monkeypatch.setattr("jobwell.worker.steps.reached", stop)

    @bed.app.task(name="two", retry=AGAIN)
    def two(ctx: SyncContext) -> None:
        ctx.step("a", called.append, "a")
        try:
            ctx.step("b", called.append, "b")
        finally:
            with pytest.raises(asyncio.CancelledError):
                ctx.step("c", called.append, "c")

    job = two.enqueue()
    bed.drain()
    assert (desk.state(job), called, states(desk, job)) == ("cancelled", ["a"], [("a", "done")])


async def test_who_stood_still_after_the_record_asks_once_more_and_calls_nothing(
    app: App, desk: Desk, bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobwell.worker.steps.STALE", 0.0)  # any time is long
    over = threading.Event()
    of_loop = app.client.connections.of_loop

    @contextlib.asynccontextmanager
    async def frozen() -> AsyncIterator[Any]:
        async with of_loop() as conn:
            yield conn
        desk.conn.execute("update jobs set claim_id = gen_random_uuid() where state = 'running'")  # rescued, and claimed again

    @app.task(name="pay", retry=AGAIN)
    async def pay(ctx: Context) -> None:
        try:
            await ctx.step("pay", bank.apay, Decimal(5), unknown="hold")
        finally:
            over.set()

    job = pay.enqueue()
    monkeypatch.setattr(app.client.connections, "of_loop", frozen)
    async with working(app):
        await auntil(over.is_set)
        desk.conn.execute("delete from jobs")
    assert (bank.keys, states(desk, job)) == ([], [("pay", "started")])


@pytest.mark.parametrize("unknown", ["repeat", asked([DidNotHappen()])], ids=["repeated", "asked"])
def test_a_repeat_that_did_not_happen_says_nothing_of_the_time_before(bed: Testbed, desk: Desk, bank: Bank, unknown: Any) -> None:
    bank.errors = [TimeoutError("nobody answered"), ConnectionRefusedError("closed")]
    job = payer(bed.app, bank, unknown, retry=Fixed("0s", attempts=2)).enqueue(Decimal(5))
    bed.drain(retries=True)
    if unknown != "repeat":
        assert rows(desk, job) == []
        return
    (row,) = rows(desk, job)
    assert (row["state"], desk.job(job)["reason"]) == ("started", "exhausted")
    assert "in attempt 1 is not known (TimeoutError: nobody answered); this time it did not happen" in row["note"]


def test_told_to_stop_before_a_repeat_it_does_not_forget_the_time_before(
    bed: Testbed, desk: Desk, bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(point: str, _: Any, attempt: Any) -> None:
        if (point, attempt.job.attempt) == ("begun", 2):
            attempt.stopped = "cancelled"

    monkeypatch.setattr("jobwell.worker.steps.reached", stop)
    bank.errors = [TimeoutError("nobody answered")]
    job = payer(bed.app, bank, "repeat").enqueue(Decimal(5))
    bed.drain(retries=True)
    assert (desk.state(job), states(desk, job)) == ("cancelled", [("pay", "started")])


async def test_what_has_happened_is_written_though_the_time_limit_says_again_and_again_that_it_is_over(
    app: App, desk: Desk, bank: Bank, database_url: str, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    blocker = psycopg.connect(database_url)

    async def pay(amount: Decimal) -> Receipt:
        receipt = bank.pay(amount, "")
        blocker.execute(f"lock table {schema}.steps in exclusive mode")  # the store is slow to write it
        return receipt

    @app.task(name="pay", timeout="300ms", retry=Fixed("0s", attempts=2))
    async def late(ctx: Context) -> None:
        await ctx.step("pay", pay, Decimal(5), unknown="hold")

    async with working(app):
        job = late.enqueue()
        await auntil(lambda: "is over its time limit" in caplog.text)
        await apause(0.3)  # several looks of the limits
        blocker.close()
        await desk.end(job)
    assert (desk.outcomes(job)[0], desk.state(job), bank.done) == ("retrying", "succeeded", [Decimal(5)])


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("then", ["transaction", "inside", "checkpoint"])
def test_held_neither_a_transaction_nor_a_checkpoint_goes_past_it(
    bed: Testbed, desk: Desk, bank: Bank, plain: bool, then: str
) -> None:
    went: list[str] = []

    @bed.app.task(name="on_loop", retry=AGAIN)
    async def on_loop(ctx: Context) -> None:
        await asyncio.gather(ctx.step("pay", bank.apay, Decimal(1), unknown="hold"), return_exceptions=ctx.attempt > 1)
        if then == "checkpoint":
            await ctx.checkpoint.save(7)
        async with ctx.transaction():
            went.append("in")
        went.append("past")

    @bed.app.task(name="inside", retry=AGAIN)
    async def inside(ctx: Context) -> None:
        async with ctx.transaction():
            await asyncio.gather(ctx.step("pay", bank.apay, Decimal(1), unknown="hold"), return_exceptions=ctx.attempt > 1)
        went.append("past")

    @bed.app.task(name="plainly", retry=AGAIN)
    def plainly(ctx: SyncContext) -> None:
        with contextlib.ExitStack() as stack:
            if then == "inside":
                stack.enter_context(ctx.transaction())
            with contextlib.suppress(BaseException if ctx.attempt > 1 else KeyError):
                ctx.step("pay", bank.pay, Decimal(1), unknown="hold")
            if then == "checkpoint":
                ctx.checkpoint.save(7)
            if then == "transaction":
                stack.enter_context(ctx.transaction())
                went.append("in")
        went.append("past")

    bank.errors = [TimeoutError()]
    job = (plainly if plain else inside if then == "inside" else on_loop).enqueue()
    bed.drain(retries=True)
    assert (desk.state(job), desk.job(job)["reason"], went) == ("failed", "held", [])
    assert desk.one("select count(*) from checkpoints") == 0

"""Breakers as real workers keep them."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobwell import App, Breaker, Context, Fixed, ResourceUnavailable, Retry, SyncContext
from jobwell.events import BreakerClosed, BreakerOpened
from jobwell.worker import breakers
from tests.waiting import apause, auntil
from tests.worker.live.helpers import Books, Start

QUICK = Fixed("10ms", attempts=9, jitter=0)
RULE = Breaker(failures=0.5, window="10s", at_least=4, open="1s", longest="4s")


class Gateway:
    """A dependency that may be down. It counts who comes."""

    def __init__(self) -> None:
        self.down = True
        self.calls = self.inside = self.most = 0
        self.asks: str | None = None
        self.takes = self.refused_at = 0.0

    async def send(self) -> None:
        self.calls += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await apause(self.takes)
        finally:
            self.inside -= 1
        if self.down:
            self.refused_at = time.time()
        if self.down and self.asks:
            raise Retry("503", after=self.asks)
        if self.down:
            raise ConnectionResetError("down")


def breaker(books: Books, name: str = "sms") -> Any:
    (row,) = books.rows("select * from breakers where resource = %s", name)
    return row


def is_open(books: Books, name: str = "sms") -> Callable[[], bool]:
    return lambda: bool(books.count("breakers", f"resource = '{name}' and state = 'open'"))


def is_closed(books: Books, name: str = "sms") -> Callable[[], bool]:
    return lambda: not is_open(books, name)()


async def calm(books: Books) -> None:
    """It is open, claims that were under way then are over, and nothing runs any more."""
    await auntil(lambda: books.count("breakers", "state = 'open' and now() > since + interval '500 ms'"))
    await auntil(lambda: not books.count("jobs", "state = 'running'"))


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


def sending(app: App, gateway: Gateway, **options: Any) -> Any:
    app.resource("sms", **{"breaker": RULE} | options)

    @app.task(name="send", resources=("sms",), retry=QUICK)
    async def send(ctx: Context, n: int) -> None:
        async with ctx.call("sms", timeout="5s"):
            await gateway.send()

    return send


async def test_while_it_is_open_a_crowd_spends_no_attempt_and_a_probe_lets_it_go_on(
    app: App, start: Start, books: Books, gateway: Gateway
) -> None:
    send, told = sending(app, gateway), []

    @app.on(BreakerOpened, BreakerClosed)
    def note(event: Any) -> None:
        told.append(event)

    one, two = await start(slots=4), await start(slots=4)
    await app.aenqueue_many([send.job(n) for n in range(1000)])
    await calm(books)
    spent, gateway.most = gateway.calls, 0
    assert spent < 100
    assert books.count("jobs", "attempt = 0") > 900
    await auntil(lambda: gateway.calls > spent, what="a probe")
    await auntil(lambda: books.rows("select opens from breakers")[0]["opens"] >= 2, what="open again, for longer")
    assert gateway.most == 1
    # The probe's failure may be stored a moment after the breaker that it has opened.
    await auntil(lambda: sum(row["failures"] for row in books.rows("select failures from jobs")) == gateway.calls)
    gateway.down = False
    await books.empty()
    assert is_closed(books)()
    assert books.count("finished", "state = 'succeeded'") == 1000
    assert [type(event) for event in told].count(BreakerOpened) >= 2
    assert type(told[-1]) is BreakerClosed
    assert told[0].resource == "sms"
    assert "calls within 10s failed; the last one: ConnectionResetError: down" in told[0].why
    del one, two


async def test_one_probe_at_a_time_in_the_whole_fleet(app: App, start: Start, books: Books, gateway: Gateway) -> None:
    send = sending(app, gateway)
    gateway.takes = 0.05
    for _ in range(2):
        await start(slots=8)
    await app.aenqueue_many([send.job(n) for n in range(200)])
    await calm(books)
    gateway.most, before = 0, gateway.calls
    await auntil(lambda: gateway.calls >= before + 2, what="two probes")
    assert gateway.most == 1


async def test_a_pause_that_is_asked_for_is_kept(app: App, start: Start, books: Books, gateway: Gateway) -> None:
    send = sending(app, gateway)
    gateway.asks = "2"
    await start(slots=2)
    await start(slots=2)
    await app.aenqueue_many([send.job(n) for n in range(50)])
    await auntil(is_open(books))
    gateway.down = False
    await auntil(lambda: not books.count("jobs", "state = 'running'"))
    stands = breaker(books)
    assert stands["why"].startswith("it asked not to be called for 2s: Retry: 503")
    said = datetime.fromtimestamp(gateway.refused_at, UTC) + timedelta(seconds=2)
    assert abs(stands["until"] - said) < timedelta(seconds=1)
    await books.empty()
    # The first that came after it (and after a claim that was under way) began when the pause was over, and not much later.
    since = stands["since"] + timedelta(seconds=0.5)
    first = books.rows("select min(started_at) as at from finished where started_at > %s", since)[0]["at"]
    assert timedelta(0) <= first - stands["until"] < timedelta(seconds=1)


async def test_errors_elsewhere_touch_nothing(app: App, start: Start, books: Books) -> None:
    """Of the database, outside of any call; and inside the call of another resource."""
    app.resource("sms", breaker=RULE)
    app.resource("mail", breaker=RULE)

    @app.task(name="send", resources=("sms", "mail"), retry=Fixed("1ms", attempts=3))
    async def send(ctx: Context, n: int) -> None:
        async with ctx.call("mail"):
            pass
        if n % 2:
            raise ConnectionError("the database is away")
        async with ctx.call("sms"):
            raise ConnectionError("the gateway is away")

    await start(slots=1)
    for n in (1, 3, 5, 7, 9):
        await send.aenqueue(n)
    await books.empty()
    assert books.count("breakers", "state = 'open'") == 0
    await app.aenqueue_many([send.job(n) for n in range(0, 40, 2)])
    await auntil(is_open(books))
    assert is_closed(books, "mail")()
    mail = breaker(books, "mail")
    assert (mail["bad"], mail["bad_before"]) == (0, 0)


async def test_what_was_claimed_before_goes_back_uncounted_or_has_a_fallback(
    app: App, start: Start, books: Books, gateway: Gateway
) -> None:
    send, door, fell_back = sending(app, gateway), asyncio.Event(), []

    @app.task(name="late", resources=("sms",))
    async def late(ctx: Context, fallback: bool) -> None:
        await door.wait()
        try:
            async with ctx.call("sms"):
                await gateway.send()
        except ResourceUnavailable as error:
            if not fallback:
                raise
            fell_back.append(error.resource)

    working = await start(slots=10)
    held, falls = await late.aenqueue(fallback=False), await late.aenqueue(fallback=True)
    await auntil(lambda: books.count("jobs", "state = 'running'") == 2)
    await app.aenqueue_many([send.job(n) for n in range(30)])
    calls = working.worker._calls
    await auntil(lambda: (known := calls.known.get("sms")) is not None and known.at.open)
    door.set()
    await auntil(lambda: books.end(falls))
    assert fell_back == ["sms"]
    row = await auntil(lambda: (found := books.live(held)) and found["postponements"] and found)
    assert (row["attempt"], row["failures"]) == (0, 0) or row["failures"] == 0
    gateway.down = False
    await books.empty()
    assert books.end(held)["state"] == "succeeded"  # type: ignore[index]


async def test_plain_functions_are_counted_and_told_their_time(app: App, start: Start, books: Books) -> None:
    app.resource("sms", breaker=RULE)
    given: list[float] = []

    @app.task(name="send", resources=("sms",), retry=QUICK, timeout="7s")
    def send(ctx: SyncContext, seconds: int) -> None:
        with ctx.call("sms", timeout=seconds) as call:
            given.append(call.timeout)
            raise ConnectionRefusedError("down")

    await start(slots=2)
    await app.aenqueue_many([send.job(3), send.job(60), send.job(60), send.job(60)])
    await auntil(is_open(books))
    assert min(given) == 3
    assert 6 < max(given) <= 7


async def test_a_call_that_takes_too_long_counts_against_the_resource(app: App, start: Start, books: Books) -> None:
    app.resource("sms", breaker=RULE)

    @app.task(name="send", resources=("sms",), retry=QUICK)
    async def send(ctx: Context) -> None:
        async with ctx.call("sms", timeout="20ms"):
            await asyncio.Event().wait()

    await start(slots=2)
    await app.aenqueue_many([send.job() for _ in range(4)])
    await auntil(is_open(books))
    assert "TimeoutError" in breaker(books)["why"]


async def test_a_shutdown_counts_against_nobody(app: App, start: Start, books: Books) -> None:
    app.resource("sms", breaker=RULE)
    inside: list[int] = []

    @app.task(name="send", resources=("sms",))
    async def send(ctx: Context, n: int) -> None:
        async with ctx.call("sms"):
            inside.append(n)
            await asyncio.Event().wait()

    working = await start(slots=6)
    await app.aenqueue_many([send.job(n) for n in range(6)])
    await auntil(lambda: len(inside) == 6)
    calls = working.worker._calls
    await working.stop(at_once=True)
    assert [tally.bad for _, tally in calls.take()] in ([0], [])
    assert is_closed(books)()
    assert (breaker(books)["bad"], breaker(books)["opens"]) == (0, 0)


async def test_a_call_of_what_the_task_does_not_name_is_refused(app: App, start: Start, books: Books) -> None:
    app.resource("sms", breaker=RULE)

    @app.task(name="send", resources=("sms",), retry=Fixed("1ms", attempts=1))
    async def send(ctx: Context) -> None:
        async with ctx.call("smms"):
            pass

    await start()
    job = await send.aenqueue()
    ended = await books.ended(job)
    assert "does not name it (did you mean 'sms'?)" in ended["message"]


async def test_retries_above_the_budget_are_put_off_and_noted(app: App, start: Start, books: Books, gateway: Gateway) -> None:
    send = sending(app, gateway, breaker=None, retry_budget=0.1)
    await start(slots=10)
    await app.aenqueue_many([send.job(n) for n in range(60)])
    await auntil(lambda: books.count("jobs", "state = 'retrying' and run_at > now() + interval '10 seconds'") > 40)
    notes = books.rows("select note from attempts where note like '%%the retry budget of sms is spent%%'")
    assert len(notes) > 40
    assert gateway.calls < 200


async def test_a_decision_that_could_not_be_stored_is_not_lost(
    app: App, start: Start, books: Books, gateway: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send, failed, feed = sending(app, gateway), [], breakers.Breakers._feed

    async def fail_once(self: Any, conn: Any, taken: Any) -> Any:
        if taken and not failed:
            failed.append(len(taken))
            raise OSError("the network")
        return await feed(self, conn, taken)

    monkeypatch.setattr(breakers.Breakers, "_feed", fail_once)
    with caplog.at_level(logging.WARNING, "jobwell.worker"):
        await start(slots=4)
        await app.aenqueue_many([send.job(n) for n in range(4)])
        await auntil(is_open(books))
    assert failed
    assert await auntil(lambda: "the breaker of sms is open until" in caplog.text)


async def test_a_retry_that_has_forgotten_its_wish_fails_as_itself(app: App, start: Start, books: Books) -> None:
    class Forgetful(Retry):
        def __init__(self) -> None:
            Exception.__init__(self, "not now")

    app.resource("sms", breaker=RULE)

    @app.task(name="send", resources=("sms",), retry=Fixed("0s", attempts=1))
    async def send(ctx: Context) -> None:
        async with ctx.call("sms", timeout="5s"):
            raise Forgetful

    job = await send.aenqueue()
    await start()
    end = await books.ended(job)
    assert (end["reason"], end["message"]) == ("exhausted", "not now")

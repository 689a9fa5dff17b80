"""Case I1: who asks for a pause may hold all that share its key, and not only itself."""

from collections.abc import Callable

import pytest

from jobwell import App, Breaker, Context, Lock, Retry
from tests.waiting import auntil
from tests.worker.live.helpers import Books, Start


async def test_i1_one_that_must_wait_holds_the_later_jobs_of_its_key(
    app: App, start: Start, books: Books, travel: Callable[[str], None]
) -> None:
    """An ordered lock: whoever asks to come back later is not passed by those of the same key. Other keys go on."""
    ran: list[tuple[str, int]] = []

    @app.task(name="call", lock=Lock("account", ordered=True))
    async def call(ctx: Context, account: str, n: int) -> None:
        ran.append((account, n))
        if (account, n, ctx.attempt) == ("a", 0, 1):
            raise Retry("429", after="120")

    await app.aenqueue_many([call.job(account, n) for n in range(3) for account in ("a", "b")])
    await start(slots=5)
    await auntil(lambda: ("b", 2) in ran)
    late = await call.aenqueue("b", 3)
    await auntil(lambda: books.count("finished", f"id = '{late.id}'"))  # claims have gone by, and passed the others over
    assert [n for account, n in ran if account == "a"] == [0]
    assert books.rows("select state, count(*) as n from jobs group by 1 order by 1") == [
        {"state": "ready", "n": 2}, {"state": "retrying", "n": 1}]  # fmt: skip
    travel("200 seconds")  # 120 that were asked for, and the spread behind them
    await books.empty()
    assert [n for account, n in ran if account == "a"] == [0, 0, 1, 2]
    assert books.rows("select max(failures) as most, sum(failures)::int as of_all from finished") == [{"most": 1, "of_all": 1}]


@pytest.mark.parametrize("grouped", [False, True])
async def test_i1_one_that_must_wait_holds_all_jobs_of_its_resource(
    app: App, start: Start, books: Books, travel: Callable[[str], None], *, grouped: bool
) -> None:
    """Inside `ctx.call` the wish opens the breaker until then, for every task that names the resource. Also from a task group."""
    ran: list[str] = []
    app.resource("api", breaker=Breaker())

    @app.task(name="send", resources=("api",))
    async def send(ctx: Context, n: int) -> None:
        async with ctx.call("api"):
            ran.append(f"send {n}")
            if ctx.attempt == 1 and n == 0:
                wish = Retry("429", after="120")
                raise ExceptionGroup("unhandled errors in a TaskGroup", [wish]) if grouped else wish

    @app.task(name="fetch", resources=("api",))
    async def fetch(n: int) -> None:
        ran.append(f"fetch {n}")

    @app.task(name="beside")
    async def beside() -> None: ...

    await start(slots=5)
    await send.aenqueue(0)
    await auntil(lambda: books.count("breakers", "state = 'open'"))
    await app.aenqueue_many([send.job(1), fetch.job(0), fetch.job(1)])
    other = await beside.aenqueue()
    await auntil(lambda: books.count("finished", f"id = '{other.id}'"))
    assert ran == ["send 0"]
    assert books.rows("select until - since between interval '110 s' and interval '121 s' as kept from breakers") == [
        {"kept": True}
    ]
    travel("200 seconds")
    await books.empty()
    assert sorted(ran) == ["fetch 0", "fetch 1", "send 0", "send 0", "send 1"]
    assert books.rows("select sum(failures)::int as of_all from finished") == [{"of_all": 1}]

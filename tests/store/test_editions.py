"""Limits that two releases declare differently (D3), and what operators set over them."""

from collections.abc import Callable
from typing import Any

from jobwell.core.limits import Declared
from jobwell.store import limits
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs
from tests.store.conftest import Hands
from tests.store.helpers import Hand, Store, ids
from tests.store.limited import declare, finish, row

Travel = Callable[[str], None]
TWO, FIVE = row("queue", "default", 2), row("queue", "default", 5)


async def room(hand: Hand) -> int:
    """How many it could have at once."""
    rows = await hand.claim(20)
    await finish(hand, rows)
    return len(rows)


def put(store: Store, override: dict[str, Any], until: object = None, name: str = "default") -> None:
    run(store.conn, limits.put(store.statements, "queue", name, "fleet", override, actor="me", why="a test", until=until))  # type: ignore[arg-type]


def clear(store: Store, name: str = "default") -> bool:
    return bool(run(store.conn, limits.clear(store.statements, "queue", name, "fleet")))


def known(store: Store) -> list[tuple[str, int | None]]:
    return [(each["name"], each["concurrency"]) for each in run(store.conn, limits.listed(store.statements))]


async def starts(store: Store, hands: Hands, *rows: Declared) -> Hand:
    """A worker of a release that declares these."""
    hand = await hands()
    declare(store, *rows, worker=hand.worker)
    return hand


async def test_the_younger_release_decides_for_both(store: Store, hands: Hands) -> None:
    """Whichever starts, or starts again, last."""
    store.put_new(100)
    old = await starts(store, hands, TWO)
    assert await room(old) == 2
    fresh = await starts(store, hands, FIVE)
    assert [await room(old), await room(fresh)] == [5, 5]
    again = await starts(store, hands, TWO)  # one of the old release restarts in the middle of the deploy
    assert [await room(each) for each in (old, fresh, again)] == [5, 5, 5]


async def test_going_back_works_when_the_newer_release_is_gone(store: Store, hands: Hands, workers: WorkerVerbs) -> None:
    store.put_new(100)
    await starts(store, hands, TWO)
    fresh = await starts(store, hands, FIVE)
    run(store.conn, workers.leave(fresh.worker))
    back = await starts(store, hands, TWO)
    assert await room(back) == 2


async def test_what_no_live_code_declares_is_gone(store: Store, hands: Hands, workers: WorkerVerbs) -> None:
    store.put_new(100)
    old = await starts(store, hands, TWO, row("queue", "bulk", 1))
    fresh = await starts(store, hands, row("queue", "bulk", 1))
    assert await room(fresh) == 2, "the old release lives, and says so"
    run(store.conn, workers.leave(old.worker))
    fresh = await starts(store, hands, row("queue", "bulk", 1))
    assert known(store) == [("bulk", 1)]
    assert await room(fresh) == 20


async def test_a_limit_that_only_the_older_release_has_counts_while_it_lives(store: Store, hands: Hands) -> None:
    store.put_new(100)
    await starts(store, hands, row("queue", "bulk", 1))
    old = await starts(store, hands, row("queue", "bulk", 2), TWO)
    assert await room(old) == 2


async def test_what_an_operator_sets_goes_before_the_code_and_survives_deploys(
    store: Store, hands: Hands, workers: WorkerVerbs
) -> None:
    store.put_new(100)
    old = await starts(store, hands, TWO)
    put(store, {"concurrency": 7})
    assert await room(old) == 7
    run(store.conn, workers.leave(old.worker))
    fresh = await starts(store, hands, FIVE)
    assert await room(fresh) == 7
    run(store.conn, workers.leave(fresh.worker))
    last = await starts(store, hands, row("queue", "bulk", 1))
    assert await room(last) == 7, "what a person has set is not retired"
    assert clear(store)
    assert not clear(store, "nothing")


async def test_it_ends_when_its_time_is_over(store: Store, hands: Hands, travel: Travel) -> None:
    store.put_new(100)
    hand = await starts(store, hands, TWO)
    put(store, {"concurrency": None}, until=store.one("select now() + interval '1 hour'"))
    assert await room(hand) == 20
    travel("2 hours")
    assert await room(hand) == 2
    put(store, {"rates": None})  # what was over does not come back with it
    assert await room(hand) == 2


async def test_a_lower_number_counts_those_that_run_already(store: Store, hands: Hands) -> None:
    store.put_new(100)
    hand = await starts(store, hands, FIVE)
    rows, claim = await hand.claim(20), hand.claim_id
    put(store, {"concurrency": 3})
    assert await hand.claim(20) == []
    await finish(hand, rows[:3], claim)
    assert len(await hand.claim(20)) == 1


async def test_a_limit_set_on_what_runs_already_counts_it(store: Store, hand: Hand) -> None:
    """There was none when they were claimed; now there is, and it is full."""
    store.put_new(100)
    rows, claim = await hand.claim(8), hand.claim_id
    put(store, {"concurrency": 3})
    assert await hand.claim(20) == []
    await finish(hand, rows[:6], claim)
    got = await hand.claim(20)
    assert len(got) == 1, ids(got)
    put(store, {"concurrency": None})
    assert len(await hand.claim(9)) == 9
    put(store, {"concurrency": 10})
    assert await hand.claim(20) == []

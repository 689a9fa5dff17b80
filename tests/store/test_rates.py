"""Rates: what the store's functions say, charged at the claim, given back for what did not start, and no window too full (D17)."""

import asyncio
from collections.abc import Callable

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobwell.core.ids import gate_of
from jobwell.core.limits import Rate, rates
from jobwell.core.outcome import Released, Retrying
from jobwell.store.limits import forget_uses
from jobwell.store.statements import run
from tests.core.windows import charged, fullest, room
from tests.store.conftest import Hands
from tests.store.helpers import FAILURE, GATE, Hand, Store, ids
from tests.store.limited import declare, finish, gate, patient, row, stored
from tests.waiting import apause

Travel = Callable[[str], None]
OTHER = gate_of("other")
UNSTARTED = Released("shutdown")

some_rates = st.lists(
    st.builds(Rate, st.integers(1, 500), st.sampled_from([0.1, 1.0, 60.0]))
    | st.builds(lambda count, seconds: Rate(count, seconds, (count + 1) // 2), st.integers(1, 500), st.sampled_from([1.0, 60.0])),
    min_size=1, max_size=3,
)  # fmt: skip


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some_rates, st.lists(st.tuples(st.integers(0, 2_000_000), st.integers(1, 200)), min_size=1, max_size=12))
def test_the_functions_of_the_store_say_what_the_rule_says(store: Store, wanted: list[Rate], asks: list[tuple[int, int]]) -> None:
    """Against the rule in Python, which tests/core holds to what is promised."""
    given, due, now = orjson.dumps([each.stored() for each in wanted]).decode(), [0.0] * len(wanted), 0.0
    kept = ["epoch"] * len(wanted)
    for gap, want in asks:
        now += gap / 1e6
        at = "1970-01-01 00:00:00+00"
        said = store.one(
            "select r.room, r.wait, case when r.room > 0 then c.after else %s::timestamptz[] end,"
            " (select array_agg(extract(epoch from t)::float8 order by n) from unnest(c.after) with ordinality x(t, n))"
            " from (select %s::timestamptz + %s * interval '1 second' as now) n,"
            " lateral rate_room(%s::json, %s::timestamptz[], n.now, %s) r, lateral (select rate_charged(%s::json, %s::timestamptz[], n.now, r.room) as after) c",
            kept, at, now, given, kept, want, given, kept,
        )  # fmt: skip
        free, wait = room(wanted, due, now, want)
        assert abs(said[0] - free) <= (1 if _on_the_edge(wanted, due, now) else 0)
        assert said[1] == pytest.approx(wait, abs=1e-4)
        if said[0] > 0:
            due, kept = charged(wanted, due, now, said[0]), said[2]
            assert said[3] == pytest.approx(due, abs=1e-4)


def _on_the_edge(wanted: list[Rate], due: list[float], now: float) -> bool:
    """Whether a microsecond decides."""
    parts = [(rate.slack - max(0.0, at - now)) / rate.every for rate, at in zip(wanted, due, strict=True)]
    return any(abs(part - round(part)) < 1e-3 for part in parts)


async def test_a_rate_lets_in_so_many_and_tells_when_to_ask_again(store: Store, hand: Hand, travel: Travel) -> None:
    declare(store, row("queue", "default", rate=Rate(100, 3600, burst=10)))
    store.put_new(50)
    assert len(await hand.claim(4)) == 4
    assert len(await hand.claim(20)) == 6
    batch = await hand.claim(20)
    assert batch == []
    assert batch.again == pytest.approx(3600 * 1.025 / 91, abs=2)
    travel("1 minute")
    assert len(await hand.claim(20)) == 1
    travel("2 hours")
    assert len(await hand.claim(20)) == 10


async def test_every_window_holds_and_the_emptiest_decides(store: Store, hand: Hand, travel: Travel) -> None:
    gate(store, GATE, "note", "sms")
    declare(store, row("resource", "sms", rate=[Rate(10, 1, burst=5), Rate(12, 3600, burst=12)]))
    store.put_new(50)
    got = []
    for second in (0, 10, 20, 30):
        travel(f"{second} seconds")
        got.append(len(await hand.claim(20)))
    assert got == [5, 5, 2, 0]


async def test_rates_are_charged_at_the_claim_and_no_end_gives_anything_back(store: Store, hand: Hand) -> None:
    declare(store, row("queue", "default", rate=Rate(3, 3600, burst=3)))
    store.put_new(9)
    (first, second, third) = await hand.claim(10)
    claim = hand.claim_id
    await hand.end(Retrying(0.0, FAILURE), (first.id, claim))
    await finish(hand, [second, third], claim)
    assert await hand.claim(10) == []


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_what_did_not_start_is_given_back(store: Store, hand: Hand, count: int) -> None:
    gate(store, GATE, "note", "sms")
    declare(store, row("resource", "sms", rate=[Rate(3, 3600, burst=3), Rate(100, 86400, burst=50)]), row("queue", "default", 50))
    store.put_new(9)
    rows = await hand.claim(10)
    claim = hand.claim_id
    assert await hand.claim(10) == []
    back = [(job, claim, UNSTARTED) for job in ids(rows)[:count]]
    assert await hand.verbs.unstarted(hand.conn, back) == set()
    assert await hand.verbs.unstarted(hand.conn, back) == {job for job, _, _ in back}  # a second time gives nothing
    assert len(await hand.claim(10)) == count
    assert await hand.claim(10) == []


async def test_what_did_not_start_is_given_back_piece_by_piece(store: Store, hand: Hand) -> None:
    declare(store, row("queue", "default", rate=Rate(3, 3600, burst=3)))
    store.put_new(9)
    rows = await hand.claim(10)
    for job in ids(rows):
        assert await hand.verbs.unstarted(hand.conn, [(job, hand.claim_id, UNSTARTED)]) == set()
    assert len(await hand.claim(10)) == 3


async def test_a_late_refund_never_makes_a_window_too_full(store: Store, hand: Hand, travel: Travel) -> None:
    """A job of the first claim did not start; others have used the rate since, and the window behind it is full of them."""
    declare(store, row("queue", "default", rate=Rate(10, 100)))
    store.put_new(60)
    started, lost = list[float](), await hand.claim_one()
    claim = hand.claim_id
    for tick in range(1, 140):
        travel(f"{tick * 2} seconds")
        if tick == 100:
            await hand.verbs.unstarted(hand.conn, [(lost.id, claim, UNSTARTED)])
        rows = await hand.claim(10)
        started += [tick * 2.0] * len(rows)
        await finish(hand, rows)
    assert fullest(started, 100) <= 10
    assert len(started) >= 0.9 * 27


async def test_other_keys_are_unaffected(store: Store, hand: Hand) -> None:
    gate(store, GATE, "note", "sms")
    gate(store, OTHER, "other", "mail")
    declare(store, row("resource", "sms", rate=Rate(1, 3600)), row("resource", "mail", rate=Rate(1000, 1, burst=100)))
    store.put_new(20)
    store.put_new(20, gate=OTHER, task="other")
    assert len(await hand.claim(30, gates=[GATE, OTHER])) == 21


async def test_each_tenant_has_a_rate_of_its_own(store: Store, hand: Hand) -> None:
    gate(store)
    declare(store, row("task", "note", rate=Rate(2, 3600, burst=2), per="tenant"), row("tenant", "acme", rate=Rate(1, 3600)))
    for tenant in ("acme", "zoo", "bar", ""):
        store.put_new(5, tenant=tenant)
    taken = [each.tenant for _ in range(3) for each in await hand.claim(20)]
    assert sorted(taken) == ["", "", "", "", "", "acme", "bar", "bar", "zoo", "zoo"]


async def test_four_who_claim_as_fast_as_they_can_never_fill_a_window_too_full(store: Store, hands: Hands) -> None:
    """Two windows, on the clock of the database, and nearly all of the narrower one is used."""
    wanted = rates([Rate(20, 0.5), Rate(35, 1.0)])
    declare(store, row("queue", "default", rate=wanted))
    store.put_new(400)
    crew = [await hands() for _ in range(4)]

    async def work(hand: Hand) -> None:
        while store.count("finished") < 100:
            rows = await patient(hand, 10)
            claim = hand.claim_id
            await finish(hand, rows, claim)
            if not rows:
                await apause(0.003)

    async with asyncio.timeout(60):
        await asyncio.gather(*map(work, crew))
    started = [at for (at,) in store.ask("select extract(epoch from started_at)::float8 from finished order by 1")]
    for each in wanted:
        assert fullest(started, each.seconds) <= each.count


async def test_a_key_has_a_rate_of_its_own(store: Store, hand: Hand, travel: Travel) -> None:
    gate(store, GATE, "note", key_rates=stored("1/min"))
    store.put_new(3, lock_key="a")
    store.put_new(3, lock_key="b")
    for turn in range(3):
        travel(f"{turn * 70} seconds")
        rows = await hand.claim(10)
        assert len(rows) == 2, turn
        await finish(hand, rows)
        assert await hand.claim(10) == []


async def test_a_key_gets_back_what_did_not_start(store: Store, hand: Hand) -> None:
    gate(store, GATE, "note", key_rates=stored("1/h"))
    store.put_new(3, lock_key="a")
    job, claim = await hand.claim_one(), hand.claim_id
    assert await hand.verbs.unstarted(hand.conn, [(job.id, claim, UNSTARTED)]) == set()
    await hand.claim_one()
    await hand.end(Retrying(60.0, FAILURE), (job.id, hand.claim_id))
    assert await hand.claim(10) == []


async def test_uses_that_nobody_needs_are_forgotten_and_no_others(store: Store, hand: Hand, travel: Travel) -> None:
    gate(store)
    declare(store, row("task", "note", 5, rate=Rate(2, 3600, burst=2), per="tenant"))
    store.put_new(1, tenant="a")
    store.put_new(1, tenant="b")
    rows = await hand.claim(10)
    await finish(hand, rows[:1])
    assert run(store.conn, forget_uses(store.statements, 100)) == 0
    travel("3 hours")
    assert run(store.conn, forget_uses(store.statements, 100)) == 1
    await finish(hand, rows[1:])
    assert run(store.conn, forget_uses(store.statements, 100)) == 1
    assert store.count("limit_uses") == 0

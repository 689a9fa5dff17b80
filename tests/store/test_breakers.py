"""What an open breaker means for claims, and who may change its state."""

import asyncio
from datetime import timedelta
from typing import Any

from jobwell.core.breaker import Breaker, Guard, Move, Standing
from jobwell.core.why import explain
from jobwell.store import breakers, limits
from jobwell.store import why as facts
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs
from tests.store.conftest import Hands
from tests.store.helpers import DONE, GATE, Hand, Store, ids
from tests.store.limited import declare, finish, gate, patient, row

GUARD = Guard(Breaker())
FEED = {"resource": "sms", "term": 1, "good": 0, "bad": 0, "firsts": 0, "retries": 0}


def guarded(store: Store, guard: Guard = GUARD) -> None:
    """As a worker declares a resource with nothing but a breaker."""
    gate(store, GATE, "note", "sms")
    declare(store, row("resource", "sms"))
    run(store.conn, breakers.declare(store.statements, {"sms": guard}))


def stands(store: Store) -> Standing:
    (at,) = run(store.conn, breakers.feed(store.statements, [], ["sms"]))
    return at


def opens(store: Store, seconds: float) -> bool:
    at = stands(store)
    return run(store.conn, breakers.move(store.statements, at, Move(at.now + timedelta(seconds=seconds), at.opens + 1, "down")))


async def test_an_open_one_closes_its_gates_and_no_others(store: Store, hand: Hand) -> None:
    guarded(store)
    store.put_new(3)
    (other,) = store.put_new(1, gate=77)
    assert opens(store, 60)
    assert ids(await hand.claim(10, gates=(GATE, 77))) == [other]
    assert store.count("jobs", "attempt = 0") == 3
    assert run(store.conn, breakers.turn(store.statements, "sms", None, actor="ops", why="it is back"))
    assert len(await hand.claim(10)) == 3


async def test_when_its_time_is_over_one_probe_is_let_in_whoever_asks(store: Store, hands: Hands) -> None:
    guarded(store)
    store.put_new(10)
    opens(store, -1)
    assert stands(store).state == "probing"
    one, two = await hands(), await hands()
    found = await asyncio.gather(patient(one), patient(two))
    assert sorted(map(len, found)) == [0, 1]
    prober = one if found[0] else two
    claim = prober.claim_id
    assert await one.claim(10) == []
    assert await two.claim(10) == []
    await finish(prober, found[0] or found[1], claim)
    assert len(await patient(two)) == 1


async def test_more_probes_as_declared_and_never_more_than_the_limit(store: Store, hand: Hand) -> None:
    guarded(store, Guard(Breaker(probes=3)))
    store.put_new(10)
    opens(store, -1)
    rows = await hand.claim(10)
    assert len(rows) == 3
    await finish(hand, rows)
    declare(store, row("resource", "sms", 2))
    assert len(await hand.claim(10)) == 2


async def test_a_probe_that_vanishes_makes_room_for_the_next(store: Store, hands: Hands, workers: WorkerVerbs) -> None:
    guarded(store)
    store.put_new(2)
    opens(store, -1)
    killed, other = await hands(), await hands()
    assert len(await killed.claim(10)) == 1
    assert await other.claim(10) == []
    run(store.conn, workers.expire(killed.worker))
    assert run(store.conn, workers.rescue(limit=10, bound=10)) == 1
    assert len(await patient(other)) == 1


def test_of_two_that_decide_at_once_one_does(store: Store) -> None:
    guarded(store)
    at = stands(store)
    moves = [Move(at.now + timedelta(seconds=n), 1, f"the {n}.") for n in (10, 20)]
    assert [run(store.conn, breakers.move(store.statements, at, to)) for to in moves] == [True, False]
    now = stands(store)
    assert (now.term, now.until) == (at.term + 1, moves[0].until)


def test_a_pause_is_made_longer_and_never_shorter(store: Store) -> None:
    guarded(store)
    opens(store, 60)
    at = stands(store)
    assert not run(store.conn, breakers.move(store.statements, at, Move(at.now + timedelta(seconds=5), 1, "", extends=True)))
    assert run(store.conn, breakers.move(store.statements, at, Move(at.now + timedelta(seconds=90), 1, "", extends=True)))
    assert stands(store).term == at.term


def test_calls_of_an_earlier_term_say_nothing_but_count_for_the_budget(store: Store) -> None:
    guarded(store)
    opens(store, 60)
    (at,) = run(store.conn, breakers.feed(store.statements, [{**FEED, "bad": 9, "firsts": 9, "retries": 2}], ["sms"]))
    assert (at.good, at.bad, at.firsts, at.retries) == (0, 0, 9, 2)
    (at,) = run(store.conn, breakers.feed(store.statements, [{**FEED, "term": at.term, "bad": 1}], ["sms"]))
    assert at.bad == 1


def test_what_was_told_is_forgotten_after_the_window(store: Store) -> None:
    guarded(store, Guard(Breaker(window="10s")))
    told: Any = None

    def later(seconds: float) -> None:
        store.conn.execute("update breakers set half_at = half_at - %s * interval '1 second'", [seconds])

    run(store.conn, breakers.feed(store.statements, [{**FEED, "bad": 4}], ["sms"]))
    later(6)
    (told,) = run(store.conn, breakers.feed(store.statements, [{**FEED, "good": 1}], ["sms"]))
    assert (told.good, told.bad) == (1, 4)
    later(6)
    assert (stands(store).good, stands(store).bad) == (1, 0)
    later(6)
    assert (stands(store).good, stands(store).bad) == (0, 0)


async def test_a_waiting_job_says_why(store: Store) -> None:
    guarded(store)
    (job,) = store.put_new()
    opens(store, 60)
    because = {each.code: each.sentence for each in explain(run(store.conn, facts.facts(store.statements, job)))}
    assert "opened" in because["breaker_open"]
    assert "down" in because["breaker_open"]
    assert "`jobwell breakers close sms`" in because["breaker_open"]
    store.conn.execute("update breakers set until = now() - interval '1 second'")
    assert "breaker_probing" in {each.code for each in explain(run(store.conn, facts.facts(store.statements, job)))}


async def test_a_resource_without_one_is_claimed_as_before(store: Store, hand: Hand) -> None:
    guarded(store)
    opens(store, 60)
    run(store.conn, breakers.declare(store.statements, {"sms": None}))
    store.put_new(2)
    rows = await hand.claim(10)
    assert len(rows) == 2
    assert not await hand.end(DONE, *[(each.id, hand.claim_id) for each in rows])
    assert run(store.conn, limits.listed(store.statements, kind="resource"))[0]["in_use"] is None

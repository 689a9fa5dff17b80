"""Case G5: what becomes of the second of two equal jobs, cell by cell as docs/dedup.md says it, and the edges of a window."""

import re
from datetime import timedelta
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, Dedup, Duplicate
from jobwell.actions import jobs as actions
from jobwell.actions import triage
from jobwell.core.filters import Selection
from jobwell.core.outcome import Retrying
from jobwell.testing import Schema
from tests.architecture.helpers import ROOT
from tests.store.helpers import DONE, FAILED, FAILURE, Hand, Store

TERMS: dict[str, dict[str, Any]] = {
    '`until="done"`': {"until": "done"}, '`until="started"`': {"until": "started"}, "A window that is not over": {"window": "60s"},
}  # fmt: skip
DEBOUNCE = {"wait": "5s", "longest": "1m"}


def cells() -> list[tuple[str, str, str, str]]:
    """(terms, state, on_conflict, what is said), from the page."""
    found = []
    page = (ROOT / "docs" / "dedup.md").read_text(encoding="utf-8")
    for title, body in re.findall(r"^### (.*?)\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines() if line.startswith("|")]
        head, _, *rest = rows
        found += [(title, row[0], conflict, said) for row in rest for conflict, said in zip(head[1:], row[1:], strict=True)]
    return found


CELLS = cells()


def test_the_page_has_every_cell() -> None:
    states = {"waiting", "scheduled", "running", "retrying", "failed", "done", "cancelled", "deleted"}
    assert {(terms, state, conflict) for terms, state, conflict, _ in CELLS} == {
        (terms, state, conflict) for terms in TERMS for state in states for conflict in ("skip", "replace", "debounce", "reject")
    }


async def bring(state: str, task: Any, store: Store, hand: Hand, app: App) -> Any:
    """A job in this state."""
    if state == "scheduled":
        return task.using(run_after="1h").enqueue(1, "first")
    first = task.using(run_after=0).enqueue(1, "first")
    if state in ("running", "retrying", "failed", "done"):
        row = await hand.claim_one(gates=task.spec.gates)
        assert row.id == first.id
        ends = {"retrying": Retrying(60.0, FAILURE, "a note"), "failed": FAILED, "done": DONE}
        if state in ends:
            assert not await hand.end(ends[state], (first.id, hand.claim_id))
    elif state == "cancelled":
        assert first.cancel() == "cancelled"
    elif state == "deleted":
        store.conn.execute("delete from jobs where id = %s", [first.id])
    return first


@pytest.mark.parametrize(("terms", "state", "conflict", "said"), CELLS, ids=lambda value: re.sub(r"\W+", "-", value).strip("-"))
async def test_g5_each_cell(
    app: App, conn: "Connection[Any]", store: Store, hand: Hand, terms: str, state: str, conflict: str, said: str
) -> None:
    """Case G5."""
    more = DEBOUNCE if conflict == "debounce" else {}

    @app.task(name="notify", dedup=Dedup("n", on_conflict=conflict, **TERMS[terms], **more))  # type: ignore[arg-type]  # a cell
    def notify(n: int, text: str) -> None: ...

    first = await bring(state, notify, store, hand, app)
    live = store.count()
    before = store.ask("select id, state, run_at, args::text from jobs order by id")
    if said == "Duplicate":
        with pytest.raises(Duplicate) as told:
            notify.enqueue(1, "second")
        assert (told.value.job_id, told.value.task, told.value.key) == (first.id, "notify", 'notify:{"n":1}')
        assert str(first.id) in told.value.message
        assert store.ask("select id, state, run_at, args::text from jobs order by id") == before
    else:
        second = notify.enqueue(1, "second")
        assert second.created == (said == "accepted")
        assert (second.id == first.id) == (said != "accepted")
    assert store.count() == live + (said == "accepted")
    reason = {"accepted": None, "Duplicate": "rejected"}.get(said, said)
    assert store.ask("select task, reason, holder, key from dedup_hits") == (
        [("notify", reason, first.id, 'notify:{"n":1}')] if reason else []
    )
    if said in ("replaced", "debounced"):
        text, scheduled, wait = store.one(
            "select args ->> 'text', state = 'scheduled', extract(epoch from run_at - now())::float8 from jobs"
        )
        assert text == "second"
        assert (scheduled, wait > 0) == ((said == "debounced", said == "debounced"))
    elif said == "skipped":
        assert store.ask("select id, state, run_at, args::text from jobs order by id") == before


# --- windows -------------------------------------------------------------------------------------------------------------


def windowed(app: App, **more: Any) -> Any:
    @app.task(name="notify", dedup=Dedup("n", window="60s", **more))
    def notify(n: int, text: str = "") -> None: ...

    return notify


@pytest.fixture
def frozen(kit: Schema) -> Any:
    kit.clock.freeze()
    yield kit.clock
    kit.clock.reset()


@pytest.mark.parametrize(("after", "accepted"), [(0, False), (59.9, False), (60.0, True), (60.1, True)])
@pytest.mark.parametrize("done", [True, False], ids=["done", "waiting"])
async def test_g5_a_window_is_counted_by_the_databases_clock(
    app: App, hand: Hand, frozen: Any, after: float, accepted: bool, done: bool
) -> None:
    """Case G5."""
    notify = windowed(app)
    first = notify.enqueue(1)
    if done:
        await hand.claim_one(gates=notify.spec.gates)
        await hand.end(DONE, (first.id, hand.claim_id))
    if after:
        frozen.travel(timedelta(seconds=after))
    assert notify.enqueue(1).created == accepted
    assert not notify.enqueue(1).created  # and the next window has begun, where it was accepted


def test_g5_a_fixed_window_is_not_put_off_by_what_it_suppresses_and_a_sliding_one_is(app: App, frozen: Any) -> None:
    """Case G5."""
    fixed = windowed(app)

    @app.task(name="sliding", dedup=Dedup("n", window="60s", sliding=True))
    def sliding(n: int) -> None: ...

    assert (fixed.enqueue(1).created, sliding.enqueue(1).created) == (True, True)
    frozen.travel(40)
    assert (fixed.enqueue(1).created, sliding.enqueue(1).created) == (False, False)
    frozen.travel(40)
    assert (fixed.enqueue(1).created, sliding.enqueue(1).created) == (True, False)
    frozen.travel(59.9)
    assert (fixed.enqueue(1).created, sliding.enqueue(1).created) == (False, False)
    frozen.travel(60.1)
    assert (fixed.enqueue(1).created, sliding.enqueue(1).created) == (True, True)


# --- replace and debounce ------------------------------------------------------------------------------------------------


def test_a_debounced_job_is_put_off_and_never_past_the_longest_wait(app: App, store: Store, frozen: Any) -> None:
    @app.task(name="index", dedup=Dedup("page", on_conflict="debounce", wait="10s", longest="25s"))
    def index(page: int, version: int) -> None: ...

    def due() -> tuple[float, str]:
        return store.one("select extract(epoch from run_at - enqueued_at)::float8, args ->> 'version' from jobs")  # type: ignore[no-any-return]  # a row of the test's own

    first = index.enqueue(1, 1)
    assert due() == (10, "1")
    for version, (step, wanted) in enumerate([(4, 14), (9, 23), (9, 25), (2, 25)], start=2):
        frozen.travel(step)
        assert index.enqueue(1, version).id == first.id
        assert due() == (wanted, str(version))
    frozen.travel(5)  # past its time, and not begun: the newest arguments, at once
    assert not index.enqueue(1, 9).created
    assert due() == (25, "9")
    assert store.one("select state from jobs") == "ready"


def test_a_replaced_job_takes_over_everything_but_its_id_and_its_place(app: App, store: Store) -> None:
    @app.task(name="index", tenant="who", dedup=Dedup("page", on_conflict="replace"))
    def index(page: int, text: str, who: str) -> None: ...

    large = "x" * 5000
    first = index.enqueue(1, "a", "acme")
    ready_at = store.one("select ready_at from jobs")
    index.using(priority=7).enqueue(1, large, "bolt")
    assert store.one("select id, tenant, rank, bytes > 5000, args is null, ready_at from jobs") == (
        first.id, "bolt", 93, True, True, ready_at)  # fmt: skip
    assert store.one("select args ->> 'text' from payloads") == large
    index.using(run_after="1h").enqueue(1, "small", "")
    assert store.one("select state, rank, args ->> 'text', ready_at from jobs") == ("scheduled", 100, "small", None)
    assert store.count("payloads") == 0
    index.enqueue(1, "now", "")
    assert store.one("select state, ready_at is not null from jobs") == ("ready", True)
    assert store.ask("select reason, count(*) from dedup_hits group by 1") == [("replaced", 3)]


async def test_what_was_snoozed_has_begun_and_is_not_changed(app: App, store: Store, hand: Hand) -> None:
    from tests.store.helpers import SNOOZED

    @app.task(name="index", dedup=Dedup("page", until="done", on_conflict="replace"))
    def index(page: int, version: int) -> None: ...

    first = index.enqueue(1, 1)
    await hand.claim_one(gates=index.spec.gates)
    await hand.end(SNOOZED, (first.id, hand.claim_id))
    assert store.one("select state, attempt from jobs") == ("scheduled", 0)
    assert not index.enqueue(1, 2).created
    assert store.one("select args ->> 'version' from jobs") == "1"
    assert store.one("select reason from dedup_hits") == "skipped"


# --- a key outlives nothing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", ["done", "started"])
async def test_started_is_for_good_whatever_comes_back(app: App, store: Store, hand: Hand, until: Any) -> None:
    """A hand-back, a retry and a rescue leave the key where it is: held until done, or free since the first start."""
    from tests.store.helpers import RELEASED

    @app.task(name="work", dedup=Dedup("n", until=until))
    def work(n: int) -> None: ...

    first = work.enqueue(1)
    await hand.claim_one(gates=work.spec.gates)
    await hand.end(RELEASED, (first.id, hand.claim_id))
    second = work.enqueue(1)
    assert second.created == (until == "started")
    assert len(await hand.claim(2, gates=work.spec.gates)) == (2 if second.created else 1)  # both run, where both are


def fail(conn: "Connection[Any]") -> None:
    """All jobs, for good."""
    conn.execute(
        "with gone as (delete from jobs returning *) insert into quarantine (id, enqueued_at, run_at, deadline, gate, rank, attempt, failures,"
        " crashes, losses, postponements, bytes, queue, task, tenant, lock_key, reason, fingerprint, args, dedup_key, dedup)"
        " select id, enqueued_at, run_at, deadline, gate, rank, 1, 1, 0, 0, 0, bytes, queue, task, tenant, lock_key, 'exhausted', 'f', args,"
        " dedup_key, dedup from gone"
    )


def test_an_action_names_the_job_that_stands_for_it(app: App, conn: "Connection[Any]", store: Store) -> None:
    """A retry from the quarantine is a new enqueue: refused against a held key, and the holder is named."""

    @app.task(name="notify", dedup=Dedup("n"))
    def notify(n: int) -> None: ...

    failed = notify.enqueue(1)
    fail(conn)
    second = notify.enqueue(1)
    assert second.created
    done = actions.named(app.database, "quarantine.retry", [failed.id], by="olga")
    assert done.touched == 0
    assert str(second.id) in done.refused[failed.id]
    assert store.ask("select reason, holder from dedup_hits") == [("retry", second.id)]
    assert second.cancel() == "cancelled"
    done = actions.named(app.database, "quarantine.retry", [failed.id], by="olga")
    assert (done.touched, done.refused) == (1, {})
    assert not notify.enqueue(1).created  # it holds the key again


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize("size", [10, 5000], ids=["inline", "apart"])
def test_a_job_that_is_refused_keeps_the_arguments_that_it_has(
    app: App, conn: "Connection[Any]", store: Store, many: bool, size: int
) -> None:
    """Other arguments go with a retry, or not at all."""

    @app.task(name="notify", dedup=Dedup("n"))
    def notify(n: int, text: str) -> None: ...

    def told() -> list[tuple[Any, ...]]:
        return store.ask(
            "select coalesce(q.args, p.args) ->> 'text', q.bytes from quarantine q left join payloads p on p.id = q.id order by q.id"
        )

    refused, goes = notify.enqueue(1, "x" * size), notify.enqueue(2, "x" * size)
    fail(conn)
    before = told()
    assert notify.enqueue(1, "z").created
    if many:
        actions.many(app.database, "quarantine.retry", Selection(task="notify"), total=2, by="olga", args={"text": "y" * 4000})
    else:
        done = triage.retry(app.database, [refused.id, goes.id], by="olga", args={"text": "y" * 4000})
        assert (done.touched, list(done.refused)) == (1, [refused.id])
    assert told() == [before[0]] == [("x" * size, before[0][1])]
    assert store.ask("select job_id from quarantine_edits") == [(goes.id,)]
    now = store.one(
        "select coalesce(j.args, p.args) ->> 'text' from jobs j left join payloads p using (id) where id = %s", goes.id
    )
    assert now == "y" * 4000

"""A run from its start to its end, through the public door."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, Fixed, InvalidArguments, Reject, TransactionMisuse
from jobwell.runs import Items, RunContext
from jobwell.runs.items import Item
from jobwell.testing import Testbed
from tests.runs.conftest import Employee, Office, Transfer, check, people


def test_a_run_comes_to_its_end(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    run = office.operation.start(Transfer(to="Astana"), items=people(25), key="a", by="hr.officer")
    card = run.status()
    assert (card.status, card.total, card.sealed, card.percent) == ("running", 25, True, 0.0)
    bed.drain()
    card = run.status()
    assert card.status == "completed"
    assert card.percent == 100.0
    assert (card["apply"].done, card["notify"].done) == (25, 25)
    assert office.applied == office.notified == list(range(1, 26))
    assert len(office.summaries) == 1
    assert card.ended_at is not None
    check(office.app, conn, run.id)


def test_failed_and_skipped_items_go_on_to_no_further_stage(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    office.fails, office.skips, office.mail_fails = {3, 17}, {4}, {5}
    run = office.operation.start(Transfer(to="Astana"), items=people(25))
    bed.drain()
    card = run.status()
    assert card.status == "completed_with_errors"
    assert (card["apply"].done, card["apply"].failed, card["apply"].skipped) == (22, 2, 1)
    assert (card["notify"].total, card["notify"].done, card["notify"].failed) == (22, 21, 1)
    assert not {3, 17, 4} & set(office.notified)
    assert card.errors == 3
    errors = run.errors(2)
    assert [(one.key, one.code, one.message, one.attempt) for one in errors] == [
        ("3", "locked", "employee 3 is locked", 1),
        ("17", "locked", "employee 17 is locked", 1),
    ]
    assert [one.key for one in run.errors(after=errors[-1].place)] == ["5"]
    assert run.reasons() == [("apply", "locked", 2), ("notify", "no_address", 1)]
    assert run.item("4")[0]["message"] == "there already"
    check(office.app, conn, run.id)


def test_a_retry_runs_exactly_the_failed_ones_and_a_second_click_none(
    office: Office, bed: Testbed, conn: "Connection[Any]"
) -> None:
    """G11."""
    office.fails = set(range(1, 38))
    run = office.operation.start(Transfer(to="Astana"), items=people(100))
    bed.drain()
    assert run.status()["apply"].failed == 37
    before = conn.execute(
        "select no, at from run_states where run_id = %s and state = 'done' order by stage, no", [run.id]
    ).fetchall()
    office.fails = set()
    office.applied.clear()
    assert run.failed() == 37
    assert run.retry(by="hr.officer", why="unlocked") == 37
    assert run.retry(by="hr.officer") == 0
    assert run.status().status == "running"
    assert run.status()["apply"].open == 37
    bed.drain()
    assert sorted(office.applied) == list(range(1, 38))
    card = run.status()
    assert (card.status, card["apply"].done, card["notify"].done) == ("completed", 100, 100)
    assert len(office.summaries) == 1
    after = conn.execute(
        "select no, at from run_states where run_id = %s and state = 'done' order by stage, no", [run.id]
    ).fetchall()
    assert set(before) <= set(after)
    assert run.item("1")[0]["attempt"] == 2
    check(office.app, conn, run.id)


def test_a_retry_by_reason_and_by_item(office: Office, bed: Testbed) -> None:
    office.fails, office.mail_fails = {1, 2}, {5, 6}
    run = office.operation.start(Transfer(to="Astana"), items=people(10))
    bed.drain()
    office.fails, office.mail_fails = set(), set()
    assert run.failed(code="no_address") == 2
    assert run.retry(by="x", keys=["1"]) == 1
    assert run.retry(by="x", code="no_address") == 2
    bed.drain()
    assert [one.key for one in run.errors()] == ["2"]
    assert run.status().status == "completed_with_errors"


def test_the_same_key_is_the_same_run(office: Office, bed: Testbed) -> None:
    run = office.operation.start(Transfer(to="Astana"), items=people(5), key="k")
    again = office.operation.start(Transfer(to="Astana"), items=people(5), key="k")
    assert run.created
    assert not again.created
    assert again.id == run.id == office.app.runs.get("hr.transfer", "k").id
    assert again.status().total == 5
    bed.drain()
    assert sorted(office.applied) == [1, 2, 3, 4, 5]


def test_a_producer_that_breaks_leaves_the_run_open_and_the_same_start_goes_on(
    office: Office, bed: Testbed, conn: "Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """G8."""
    monkeypatch.setattr("jobwell.runs.shape.BLOCK", 10)

    def stream(until: int) -> Iterator[Employee]:
        for one in people(60):
            if one.employee_id > until:
                raise ConnectionResetError("the file share is gone")
            yield one

    with pytest.raises(ConnectionResetError):
        office.operation.start(Transfer(to="Astana"), items=stream(35), key="k", on_bad="skip")
    bed.drain()
    run = office.app.runs.get("hr.transfer", "k")
    card = run.status()
    assert (card.status, card.sealed, card.total, card["apply"].done) == ("running", False, 30, 30)
    assert card.percent is None
    assert not office.summaries
    again = office.operation.start(Transfer(to="Astana"), items=stream(60), key="k", on_bad="skip")
    assert again.id == run.id
    bed.drain()
    card = run.status()
    assert (card.status, card.total, card.duplicates, card["apply"].done) == ("completed", 60, 0, 60)
    assert sorted(office.applied) == list(range(1, 61))
    assert len(office.summaries) == 1
    check(office.app, conn, run.id)


def test_duplicates_are_counted_and_left_out(office: Office, bed: Testbed) -> None:
    run = office.operation.start(Transfer(to="Astana"), items=[*people(5), *people(3)])
    assert run.status().duplicates == 3
    assert run.status().total == 5


def test_bad_rows_stop_the_whole_run_before_anything_runs(office: Office, bed: Testbed) -> None:
    rows = [{"employee_id": 1}, {"employee_id": "seven"}, {"department": "Sales"}, {"employee_id": 4, "email": "a\0b"}]
    run = office.operation.start(Transfer(to="Astana"), items=rows, key="k")
    card = run.status()
    assert (card.status, card.bad_rows, card.why) == ("cancelled", 3, "3 rows do not fit; nothing was done")
    assert [(one.row, one.field, one.value) for one in run.bad_rows()] == [
        (2, "employee_id", "seven"),
        (3, "employee_id", None),
        (4, "", None),
    ]
    assert not bed.drain().ran
    mended = office.operation.start(Transfer(to="Astana"), items=people(2), key="k")
    assert mended.created
    bed.drain()
    assert mended.status().status == "completed"


def test_bad_rows_may_be_left_out(office: Office, bed: Testbed) -> None:
    run = office.operation.start(Transfer(to="Astana"), items=[{"employee_id": 1}, {"employee_id": "seven"}], on_bad="skip")
    bed.drain()
    card = run.status()
    assert (card.status, card.bad_rows, card["apply"].done) == ("completed", 1, 1)


def test_a_dry_run_checks_and_stores_nothing(office: Office, conn: "Connection[Any]") -> None:
    plan = office.operation.plan(Transfer(to="Astana"), items=[*people(25), *people(2), {"employee_id": "seven"}])
    assert (plan.items, plan.duplicates, plan.bad, plan.starts) == (25, 2, 1, False)
    assert plan.jobs == {"apply": 3, "notify": 25}
    assert conn.execute("select count(*) from runs").fetchone() == (0,)


def test_an_empty_run_is_complete_at_once(office: Office, bed: Testbed) -> None:
    run = office.operation.start(Transfer(to="Astana"), items=[])
    bed.drain()
    assert run.status().status == "completed"
    assert len(office.summaries) == 1


def test_params_are_checked(office: Office) -> None:
    with pytest.raises(InvalidArguments, match="hr.transfer: params: to"):
        office.operation.start({"to": None}, items=[])  # type: ignore[arg-type]  # on purpose
    with office.app.database.connect() as conn, conn.transaction(), office.app.within(conn), pytest.raises(TransactionMisuse):
        office.operation.start(Transfer(to="Astana"), items=[])


def test_an_open_run_takes_items_until_it_is_sealed(office: Office, bed: Testbed) -> None:
    run = office.operation.start(Transfer(to="Astana"), seal=False, on_bad="skip")
    assert run.add(people(5)) == 5
    bed.drain()
    assert run.add(people(7)) == 2
    run.seal()
    run.seal()
    bed.drain()
    card = run.status()
    assert (card.status, card["notify"].done, card.duplicates) == ("completed", 7, 5)


def test_a_preparation_streams_in_the_background(app: App, bed: Testbed) -> None:
    mass = app.bulk("mass", params=Transfer, item=Employee, key=lambda one: one.employee_id)
    tries = []

    @mass.prepare
    async def find(ctx: RunContext, params: Transfer) -> AsyncIterator[Employee]:
        tries.append(params.to)
        for one in people(12):
            if one.employee_id == 8 and len(tries) == 1:
                raise TimeoutError("slow")
            yield one

    done = []

    @mass.stage
    async def touch(ctx: RunContext, item: Item[Employee]) -> None:
        done.append(item.data.employee_id)

    run = mass.start(Transfer(to="Almaty"))
    assert run.status().status == "queued"
    bed.drain(retries=True)
    card = run.status()
    assert (card.status, card.total, card.duplicates) == ("completed", 12, 0)
    assert sorted(done) == list(range(1, 13))
    assert tries == ["Almaty", "Almaty"]


def test_a_preparation_that_fails_for_good_pauses_the_run_and_resume_tries_it_again(app: App, bed: Testbed) -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")
    broken = [True]

    @mass.prepare
    def find(ctx: RunContext, params: None) -> Iterator[Employee]:
        if broken[0]:
            raise Reject("no_file", "the file is not there")
        yield from people(3)

    @mass.stage
    def touch(ctx: RunContext, item: Item[Employee]) -> None:
        pass

    run = mass.start()
    bed.drain()
    card = run.status()
    assert card.parts[0].state == "failed"
    assert card.parts[0].message == "the file is not there"
    broken[0] = False
    run.pause(by="x")
    assert run.resume(by="x")
    bed.drain()
    assert run.status().status == "completed"


def test_a_chunk_that_raises_is_tried_again_and_fails_its_items_when_it_is_over(
    app: App, bed: Testbed, conn: "Connection[Any]"
) -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")

    @mass.stage(chunk=5, retry=Fixed("1s", attempts=2, jitter=0))
    async def touch(ctx: RunContext, items: Items[Employee]) -> None:
        if items[0].data.employee_id == 6:
            raise TimeoutError("the database is slow")

    run = mass.start(items=people(15))
    bed.drain(retries=True)
    assert [(one.key, one.code) for one in run.errors()] == [(str(number), "exhausted") for number in range(6, 11)]
    run.seal()
    assert run.status()["touch"].done == 10
    check(app, conn, run.id)


def test_items_that_a_loop_has_passed_are_kept_when_the_job_breaks(app: App, bed: Testbed) -> None:
    """G13: a chunk goes on behind the last recorded item."""
    mass = app.bulk("mass", item=Employee, key="employee_id")
    seen: list[int] = []

    @mass.stage(chunk=100, retry=Fixed("1s", attempts=3, jitter=0))
    async def touch(ctx: RunContext, items: Items[Employee]) -> None:
        async for item in items:
            seen.append(item.data.employee_id)
            if item.data.employee_id == 60 and ctx.attempt == 1:
                raise TimeoutError("broken")

    run = mass.start(items=people(100))
    bed.drain(retries=True)
    assert run.status()["touch"].done == 100
    assert seen == [*range(1, 61), *range(60, 101)]


def test_a_loop_that_is_left_hands_the_rest_to_another_job(app: App, bed: Testbed, conn: "Connection[Any]") -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")
    seen: list[list[int]] = []

    @mass.stage(chunk=10)
    async def touch(ctx: RunContext, items: Items[Employee]) -> None:
        seen.append([])
        async for item in items:
            seen[-1].append(item.data.employee_id)
            if len(seen[-1]) == 4:
                break

    run = mass.start(items=people(10))
    bed.drain()
    assert seen == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert (run.status().status, run.item("4")[0]["attempt"]) == ("completed", 1)
    check(app, conn, run.id)


def test_a_plain_stage_and_pieces_with_a_transaction(app: App, bed: Testbed, conn: "Connection[Any]") -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")
    conn.execute("create table if not exists business (employee integer)")
    conn.execute("truncate business")

    @mass.stage(chunk=20, retry=Fixed("1s", attempts=2, jitter=0))
    def touch(ctx: RunContext, items: Items[Employee]) -> None:
        for piece in items.pieces(5):
            with piece.transaction() as own:
                for item in piece:
                    own.execute(f"insert into {app.settings.schema}.business values (%s)", [item.data.employee_id])
                if piece[0].data.employee_id == 11 and ctx.attempt == 1:
                    raise TimeoutError("broken")

    run = mass.start(items=people(20))
    bed.drain(retries=True)
    assert run.status()["touch"].done == 20
    assert conn.execute("select count(*), count(distinct employee) from business").fetchone() == (20, 20)
    conn.execute("drop table business")


def test_one_item_is_tried_again_alone(app: App, bed: Testbed, conn: "Connection[Any]") -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")
    seen: list[tuple[int, int]] = []

    @mass.stage(chunk=10, retry=Fixed("10s", attempts=3, jitter=0))
    async def touch(ctx: RunContext, items: Items[Employee]) -> None:
        for item in items:
            seen.append((item.data.employee_id, item.attempt))
            if item.data.employee_id in (3, 4) and (item.attempt < 2 or item.data.employee_id == 4):
                item.retry("busy")

    run = mass.start(items=people(10))
    bed.drain()
    card = run.status()
    assert (card["touch"].done, card["touch"].open) == (8, 2)
    for _ in range(3):
        bed.clock.travel("11s")
        bed.drain()
    card = run.status()
    assert (card.status, card["touch"].done, card["touch"].failed) == ("completed_with_errors", 9, 1)
    assert [one for one in seen if one[0] in (3, 4)] == [(3, 1), (4, 1), (3, 2), (4, 2), (4, 3)]
    assert [(one.key, one.code, one.message, one.attempt) for one in run.errors()] == [("4", "exhausted", "busy", 3)]
    check(app, conn, run.id)


def test_a_finish_that_wants_all_done_waits_for_the_retry(app: App, bed: Testbed) -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")
    fails, finished = {2}, []

    @mass.stage
    async def touch(ctx: RunContext, item: Item[Employee]) -> None:
        if item.data.employee_id in fails:
            raise Reject("locked", "it is locked")

    @mass.finish(when="all_done")
    def close_month(ctx: RunContext, summary: Any) -> None:
        finished.append(summary.errors)

    run = mass.start(items=people(3))
    bed.drain()
    assert (run.status().status, finished) == ("completed_with_errors", [])
    fails.clear()
    run.retry(by="x")
    bed.drain()
    assert (run.status().status, finished) == ("completed", [0])


def test_deliveries_are_told_later(office: Office, bed: Testbed, app: App) -> None:
    tokens: dict[str, str] = {}
    mail = app.bulk("mail", item=Employee, key="employee_id")

    @mail.stage
    async def send(ctx: RunContext, item: Item[Employee]) -> None:
        tokens[item.key] = item.token
        app.runs.deliver(item.token, "accepted")

    run = mail.start(items=people(3))
    bed.drain()
    assert app.runs.deliver(tokens["1"], "delivered")
    assert not app.runs.deliver(tokens["1"], "delivered")
    assert not app.runs.deliver(tokens["1"], "accepted")
    assert app.runs.deliver(tokens["2"], "bounced", "no such mailbox")
    stage = run.status()["send"]
    assert (stage.done, stage.accepted, stage.delivered, stage.bounced) == (3, 1, 1, 1)
    assert run.item("2")[0]["delivery"] == "bounced"
    with pytest.raises(InvalidArguments):
        app.runs.deliver(tokens["1"][:-2] + "xx", "bounced")

"""What looks like the job of a run and is none, and what cannot be stored."""

from decimal import Decimal
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, InvalidArguments, Reject
from jobwell.runs import RunContext
from jobwell.runs.items import Item
from jobwell.store import runs as store
from jobwell.testing import Testbed
from tests.runs.conftest import Employee, Office, Transfer, check, people


@pytest.mark.parametrize("bulk_run", ["a" * 36, "-" * 36, "0f8fad5b-d9cb-469f-a165-70867728950e", "no run", "RUN"])
def test_a_plain_task_may_call_its_parameters_as_it_likes(
    app: App, office: Office, bed: Testbed, conn: "Connection[Any]", bulk_run: str
) -> None:
    run = office.operation.start(Transfer(to="Astana"), items=people(3))

    @app.task(name="plain", retry=None)
    async def plain(bulk_run: str, stage: int, spans: Any) -> None:
        raise Reject("no", "not this one")

    @app.task(name="other", retry=None)
    async def other() -> None:
        raise Reject("no", "nor this one")

    for spans in ([[1, 3]], "text", [[1]], {"a": 1}, [["x", "y"]], [[10**30, 1]]):
        plain.enqueue(str(run.id) if bulk_run == "RUN" else bulk_run, 0, spans)
    other.enqueue()
    bed.drain()
    assert conn.execute("select count(*) from quarantine").fetchone() == (7,)
    assert run.status().status == "completed"
    check(app, conn, run.id)


def test_arguments_that_cannot_be_read_fail_by_themselves(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    """As somebody may enqueue by hand a job with the task of a stage."""
    office.raises = [Reject("no", "not these")]
    run = office.operation.start(Transfer(to="Astana"), items=people(3))
    bed.drain()
    conn.execute("create temp table odd as select * from quarantine")
    for spans in ('"text"', "[[1]]", '[["x", 1]]', "[[1000000000000000000000000000000, 1]]", '"\\u0000"'):
        args = f'{{"bulk_run": "{run.id}", "stage": 0, "spans": {spans}}}'
        conn.execute("update odd set id = gen_random_uuid(), args = %s::json", [args])
        conn.execute("insert into quarantine select * from odd")
    assert run.status()["apply"].failed == 3
    check(office.app, conn, run.id)


def test_what_cannot_be_stored_is_refused_by_its_name(office: Office, bed: Testbed) -> None:
    run = office.operation.start(Transfer(to="Astana"), items=people(3))
    for verb in (run.pause, run.resume, run.continue_, run.cancel, run.retry):
        with pytest.raises(InvalidArguments, match="by holds a NUL"):
            verb(by="a\0b")
        with pytest.raises(InvalidArguments, match="why holds a NUL"):
            verb(by="x", why="a\0b")
    for ask in (lambda **choice: run.retry(by="x", **choice), run.failed):
        for choice in ({"stage": "a\0"}, {"code": "a\0"}, {"keys": ["1", "a\0"]}):
            with pytest.raises(InvalidArguments, match=f"{next(iter(choice))} holds a NUL"):
                ask(**choice)
    with pytest.raises(InvalidArguments, match="code holds"):
        run.errors(code="a\0")
    with pytest.raises(InvalidArguments, match="key holds"):
        run.item("a\0")
    for wrong in (Decimal("1.5"), "a\0b"):
        with pytest.raises(InvalidArguments, match=r"only=.*nothing was started"):
            office.operation.start(Transfer(to="Astana"), items=people(3), only={"department": wrong})
    assert run.status().status == "running"


def test_a_start_finds_its_key_free_where_the_holder_is_refused_at_this_moment(
    office: Office, conn: "Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    first = office.operation.start(Transfer(to="Astana"), items=people(3), key="k", seal=False)
    create, calls = store.create, []

    def refused(statements: Any, new: Any) -> Any:
        asked = create(statements, new)
        rows = yield next(asked)
        calls.append(rows)
        conn.execute("update runs set refused = true, state = 'cancelled', cancelled = true where id = %s", [first.id])
        try:
            while True:
                rows = yield asked.send(rows)
        except StopIteration as end:
            return end.value

    monkeypatch.setattr(store, "create", refused)
    again = office.operation.start(Transfer(to="Astana"), items=people(3), key="k")
    assert calls == [[]]
    assert again.created
    assert again.id != first.id


def test_what_a_gateway_says_before_the_stage_has_recorded_stays(app: App, bed: Testbed) -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")

    @mass.stage
    def send(ctx: RunContext, item: Item[Employee]) -> None:
        app.runs.deliver(item.token, "bounced", "the mailbox is full")

    run = mass.start(items=people(1))
    bed.drain()
    [told] = run.item("1")
    assert (told["state"], told["delivery"], told["message"]) == ("done", "bounced", "the mailbox is full")

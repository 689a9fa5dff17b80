"""What looks like the job of a run and is none, and what cannot be stored."""

from typing import Any
from uuid import uuid4

import pytest
from psycopg import Connection

from jobwell import App, Reject
from jobwell.testing import Testbed
from tests.runs.conftest import Office, Transfer, check, people


@pytest.mark.parametrize("bulk_run", ["a" * 36, "-" * 36, str(uuid4()), "no run", "RUN"])
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

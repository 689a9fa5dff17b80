"""A job by hand, from a URL alone or with the code; each wrong word is answered before anything is stored."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

import jobwell
from jobwell import App, Lock
from jobwell.core.ids import new_id
from jobwell.core.published import publish
from jobwell.store import catalog
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs
from tests.cli.conftest import Cli
from tests.cli.test_seeing import work_off

Conn = psycopg.Connection[tuple[Any, ...]]
CODE = """
import datetime as dt
from decimal import Decimal
from pydantic import Field
from typing import Annotated
from jobwell import App, Lock
app = App()

@app.task(name="hr.transfer", tenant="branch", lock=Lock("on"))
async def transfer(employee_id: Annotated[int, Field(gt=0)], on: dt.date, branch: str = "north", pay: Decimal | None = None) -> str: ...
"""


@pytest.fixture
def got(app: App) -> list[Any]:
    return []


@pytest.fixture
def published(app: App, conn: Conn, got: list[Any]) -> App:
    """As if a worker had started and gone."""

    @app.task(name="hr.transfer", tenant="branch", lock=Lock("employee_id"), queue="bulk", priority=5)
    async def transfer(employee_id: int, on: dt.date, branch: str = "north", pay: Decimal | None = None) -> str:
        got.append((employee_id, on, branch, pay))
        return "done"

    worker = new_id()
    run(conn, WorkerVerbs(app.database.statements).register(
        worker, lease=60.0, pid=1, host="h", name="h/1", version="0", slots=1, queues=["default", "bulk", "special"]))  # fmt: skip
    specs = {spec.name: publish(spec) for spec in app.catalog}
    run(conn, catalog.publish(app.database.statements, worker, specs, release=jobwell.__version__))
    return app


def jobs(conn: Conn, app: App) -> list[tuple[Any, ...]]:
    return conn.execute(f"select * from {app.settings.schema}.jobs").fetchall()


def test_from_a_url_alone_to_the_task(published: App, conn: Conn, cli: Cli, got: list[Any]) -> None:
    said = cli(
        "jobs", "enqueue", "hr.transfer", "--arg", "employee_id=7", "--arg", "on=2030-01-31", "--arg", "pay=12.50", "--by", "olga"
    )
    assert (said.code, said.err) == (0, "")
    job = said.out.strip()
    same = published.catalog["hr.transfer"]
    row = conn.execute(f"select id, queue, rank, gate, tenant, lock_key, meta from {published.settings.schema}.jobs").fetchone()
    assert row is not None
    assert (str(row[0]), *row[1:]) == (
        job,
        "bulk",
        95,
        same.gate,
        "north",
        'hr.transfer:{"employee_id":7}',
        {"initiator": "olga"},
    )
    audit = conn.execute(f"select actor, action, target, detail ->> 'task' from {published.settings.schema}.audit").fetchall()
    assert audit == [("olga", "jobs.enqueue", job, "hr.transfer")]
    work_off(published, conn)
    assert got == [(7, dt.date(2030, 1, 31), "north", Decimal("12.5"))]


def test_all_options(published: App, conn: Conn, cli: Cli) -> None:
    said = cli(
        "jobs", "enqueue", "hr.transfer", "--args", '{"employee_id": 8, "on": "2030-01-31"}', "--arg", "branch=007", "--queue", "special",
        "--priority", "-3", "--run-after", "2099-01-31T08:00+05:00", "--deadline", "2h", "-o", "json",
    )  # fmt: skip
    assert said.json | {"id": ""} == {"id": "", "task": "hr.transfer", "queue": "special", "outcome": "created"}
    schema = published.settings.schema
    row = conn.execute(f"select state, queue, rank, tenant, run_at, deadline - run_at from {schema}.jobs").fetchone()
    assert row == ("scheduled", "special", 103, "007", dt.datetime(2099, 1, 31, 3, tzinfo=dt.UTC), dt.timedelta(hours=2))
    assert cli("jobs", "enqueue", "hr.transfer", "--args", '{"employee_id": 8, "on": "x"}', "--tenant", "t").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("hr.transfr",), 3, "did you mean 'hr.transfer'?"),
        (("\x1b[2Jx",), 3, "no worker has published a task"),
        (("hr.transfer",), 1, "employee_id is required"),
        (("hr.transfer", "--arg", "employe_id=7"), 1, "did you mean 'employee_id'?"),
        (("hr.transfer", "--arg", "employee_id"), 2, "is not NAME=VALUE"),
        (("hr.transfer", "--arg", "on=1", "--arg", "on=2"), 2, "given twice"),
        (("hr.transfer", "--args", "{"), 1, "line 1, column 2"),
        (("hr.transfer", "--args", "[1]"), 1, "one JSON object"),
        (("hr.transfer", "--args", "-"), 1, "not well-formed"),
        (("hr.transfer", "--args", '{"employee_id": "7", "on": "2030-01-31"}'), 1, "write it as integer"),
        (
            ("hr.transfer", "--args", '{"employee_id": 7, "on": "2030-01-31"}', "--queue", "specail"),
            3,
            "no worker serves a queue",
        ),
        (("hr.transfer", "--args", '{"employee_id": 7, "on": "2030-01-31"}', "--run-after", "soon"), 1, "not a duration"),
        (("hr.transfer", "--args", '{"employee_id": 7, "on": "2030-01-31"}', "--priority", "101"), 2, "range"),
        (("hr.transfer", "--app", "nowhere:app"), 78, "no module 'nowhere'"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_stored(
    published: App, conn: Conn, cli: Cli, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    said = cli("jobs", "enqueue", *arguments)
    assert (said.code, said.out) == (code, "")
    assert sentence in said.err
    assert "Traceback" not in said.err
    assert "\x1b" not in said.err
    assert jobs(conn, published) == []


def test_above_the_size_limit(published: App, conn: Conn, cli: Cli) -> None:
    text = "x" * 3000
    said = cli("jobs", "enqueue", "hr.transfer", "--args", f'{{"employee_id": 7, "on": "{text}"}}', JOBWELL_PAYLOAD_LIMIT="2000")
    assert said.code == 1
    assert "the limit is 2,000" in said.err
    assert jobs(conn, published) == []


def test_what_lies_deeper_ends_in_the_quarantine(published: App, conn: Conn, cli: Cli, got: list[Any]) -> None:
    assert cli("jobs", "enqueue", "hr.transfer", "--arg", "employee_id=7", "--arg", "on=tomorrow").code == 0
    work_off(published, conn)
    (row,) = cli("quarantine", "list", "-o", "json").json
    assert row["reason"] == "invalid"
    assert got == []


def test_with_the_code_all_is_checked_before(published: App, conn: Conn, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(CODE)
    given = ("jobs", "enqueue", "hr.transfer", "--app", "shop:app", "--arg", "on=2030-01-31")
    for value, sentence in (("0", "greater than 0"), ("x", "is not integer")):
        said = cli(*given, "--arg", f"employee_id={value}")
        assert said.code == 1
        assert sentence in said.err
    assert cli(*given, "--arg", "employee_id=7", "--queue", "special").code == 3
    assert jobs(conn, published) == []
    assert cli(*given, "--arg", "employee_id=7", "--queue", "reports").code == 0
    row = conn.execute(f"select queue, lock_key, args::text from {published.settings.schema}.jobs").fetchone()
    assert row is not None
    assert row[:2] == ("reports", 'hr.transfer:{"on":{"$date":"2030-01-31"}}')
    assert '{"$date":"2030-01-31"}' in row[2]


def test_before_any_worker_has_started(cli: Cli) -> None:
    said = cli("jobs", "enqueue", "hr.transfer")
    assert said.code == 3
    assert "--app module:app" in said.err

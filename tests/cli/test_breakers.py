"""`jobwell breakers`, and what `limits` and `jobs why` tell of them."""

from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, Breaker
from jobwell.core.ids import new_id
from jobwell.store import breakers, limits
from jobwell.store.statements import run
from tests.cli.conftest import Cli

Conn = Connection[Any]


@pytest.fixture
def note(app: App, conn: Conn) -> Any:
    """A task whose resource has a breaker, known to the store as a worker makes it known."""
    app.resource("sms", breaker=Breaker())

    @app.task(name="hr.note", resources=("sms",))
    async def note(n: int) -> None: ...

    run(conn, limits.publish(app.database.statements, new_id(), app.catalog, app.limits_declared()))
    run(conn, breakers.declare(app.database.statements, app.guards))
    return note


def test_by_hand_it_is_opened_shown_and_closed(note: Any, conn: Conn, cli: Cli) -> None:
    job = note.enqueue(1)
    said = cli("breakers", "open", "sms", "--for", "20m", "--why", "they restart", "--by", "olga")
    assert said.out.startswith("the breaker of sms is open until 20")
    (row,) = cli("breakers", "list", "-o", "json").json
    assert (row["state"], row["changed_by"], row["why"]) == ("open", "olga", "they restart")
    assert "they restart" in cli("breakers", "list").out
    assert "since 20" in cli("breakers", "show", "sms").out
    assert "its breaker is open until 20" in cli("limits", "show", "sms").out
    assert "the breaker of sms is open until" in cli("limits", "list").out
    assert "The breaker of 'sms' is open until" in cli("jobs", "why", str(job.id)).out.replace("\n", " ")
    assert cli("breakers", "close", "sms", "--why", "they are back", "--by", "olga").out.startswith(
        "the breaker of sms is closed"
    )
    assert cli("breakers", "show", "sms", "-o", "json").json["state"] == "closed"
    rows = conn.execute("select actor, action, target, detail ->> 'why' from audit order by at, id").fetchall()
    assert rows == [("olga", "breakers.open", "sms", "they restart"), ("olga", "breakers.close", "sms", "they are back")]


def test_what_cannot_be_done_is_said(note: Any, cli: Cli) -> None:
    unknown = cli("breakers", "show", "smms")
    assert unknown.code == 3
    assert "did you mean 'sms'?" in unknown.err
    closed, endless = cli("breakers", "close", "sms", "--why", "x"), cli("breakers", "open", "sms", "--why", "x")
    assert (closed.code, endless.code) == (4, 2)
    assert "closed already" in closed.err
    assert "--for or --until" in endless.err

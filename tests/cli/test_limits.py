"""`jobwell limits`, `pause`, `resume`, `holds`, and what `status`, `doctor` and `jobs why` tell of them."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, Limit
from jobwell.client.task import AsyncTask
from jobwell.core.ids import new_id
from jobwell.store import limits as store
from jobwell.store.statements import run
from tests.cli.conftest import Cli

Conn = Connection[Any]
Note = AsyncTask[..., None]


@pytest.fixture
def note(app: App, conn: Conn) -> Note:
    """A task with a limited resource, known to the store as a worker makes it known."""
    app.resource("sms-gateway", limits=(Limit(concurrency=5, rate="300/min"), Limit(concurrency=2, per="tenant")))

    @app.task(name="hr.note", resources=("sms-gateway",), tenant="branch", deadline="30m")
    async def note(n: int, branch: str = "north") -> None: ...

    run(conn, store.publish(app.database.statements, new_id(), app.catalog, app.limits_declared()))
    return note


def test_a_limit_is_set_shown_and_cleared(note: Note, conn: Conn, cli: Cli) -> None:
    said = cli("limits", "set", "sms-gateway", "--rate", "60/min", "--rate", "2/s", "--concurrency", "3", "--for", "2h", "--why", "provider asked", "--by", "olga")  # fmt: skip
    assert said.out.startswith("resource sms-gateway: 3 at once, 60/min, 2/s until 20")
    row = next(row for row in cli("limits", "list", "-o", "json").json if row["per"] == "fleet")
    assert (row["concurrency"], row["rate"], row["code_concurrency"], row["code_rate"], row["in_use"]) == (
        3,
        ["60/min", "2/s"],
        5,
        ["300/min"],
        0,
    )
    lasts = datetime.fromisoformat(row["set_until"]) - datetime.fromisoformat(row["set_at"])
    assert timedelta(minutes=119) < lasts <= timedelta(hours=2)
    listed = cli("limits", "list").out
    for word in ("sms-gateway", "0 of 3", "60/min, 2/s", "olga at 20", "provider asked", "code"):
        assert word in listed
    assert (
        cli("limits", "list", "-o", "csv")
        .out.splitlines()[1]
        .startswith('resource,sms-gateway,fleet,3,0,"60/min,2/s",,true,5,300/min,,')
    )
    shown = cli("limits", "show", "sms-gateway").out
    for word in (
        "3 at once, 60/min, 2/s",
        "5 at once, 300/min",
        "by olga at 20",
        "provider asked",
        "0 of 3",
        "at once",
        "per tenant",
    ):
        assert word in shown
    assert "Limits set" in cli("status").out
    (told,) = cli("status", "-o", "json").json["limits_set"]
    assert (told["name"], told["set_by"]) == ("sms-gateway", "olga")
    assert cli("limits", "clear", "sms-gateway").out == "resource sms-gateway: 5 at once, 300/min; 2 at once per tenant\n"
    assert cli("limits", "clear", "sms-gateway").out == "nothing had been set for the resource sms-gateway\n"
    assert cli("status", "-o", "json").json["limits_set"] == []
    actions = conn.execute("select actor, action, target from audit order by at, id").fetchall()
    assert actions[0] == ("olga", "limits.set", "resource:sms-gateway")
    assert actions[1][1:] == ("limits.clear", "resource:sms-gateway")


def test_limits_can_be_lifted_and_weights_set(note: Note, cli: Cli) -> None:
    note.enqueue(1)
    assert (
        cli("limits", "set", "sms-gateway", "--rate", "none", "--concurrency", "none", "--why", "x").out
        == "resource sms-gateway: no limit\n"
    )
    assert cli("limits", "set", "tenant:north", "--weight", "2.5", "--why", "x", "-o", "json").json["weight"] == 2.5
    assert cli("limits", "set", "tenant:*", "--concurrency", "4", "--why", "x").out == "tenant *: 4 at once\n"
    shown = cli("limits", "show", "north").out
    for word in ("tenant north", "weight 2.5", "each tenant that is not named", "0 of 4"):
        assert word in shown
    assert "in use" not in cli("limits", "show", "tenant:*").out
    assert cli("limits", "set", "hr.note", "--per", "host", "--concurrency", "1", "--why", "x").out == "task hr.note: 1 at once\n"
    assert "has no limit" in cli("limits", "show", "queue:bulk").out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("sms-gatway", "--rate", "1/s"), 3, "did you mean 'sms-gateway'?"), (("sms-gateway",), 2, "nothing is changed"),
        (("sms-gateway", "--rate", "often"), 2, "'10/s'"), (("sms-gateway", "--rate", "none", "--rate", "1/s"), 2, "'none' stands alone"),
        (("sms-gateway", "--concurrency", "many"), 2, "'many' is no number"), (("sms-gateway", "--concurrency", "-1"), 2, "from 0 to"),
        (("sms-gateway", "--weight", "2"), 2, "a weight is for a tenant"),
        (("tenant:*", "--weight", "nan"), 2, "0.001 to 1000"),
        (("sms-gateway", "--rate", "1/s", "--until", "yesterday"), 2, "18:00"), (("sms-gateway", "--rate", "1/s", "--until", "2h", "--for", "2h"), 2, "one of the two"),
        (("sms-gateway", "--rate", "1/s", "--kind", "task"), 3, "nobody knows the task"),
    ],
)  # fmt: skip
def test_a_wrong_limit_is_answered_in_words(
    note: Note, conn: Conn, cli: Cli, arguments: tuple[str, ...], code: int, said: str
) -> None:
    answer = cli("limits", "set", *arguments, "--why", "x")
    assert (answer.code, said in answer.err) == (code, True), answer.err
    assert conn.execute("select count(*) from audit").fetchone() == (0,)


def test_a_hold_says_first_what_it_delays(note: Note, conn: Conn, cli: Cli) -> None:
    for n in range(3):
        note.enqueue(n)
    words = ("pause", "task", "hr.note", "--why", "wrong data", "--until", "2h", "--by", "olga")
    said = cli(*words, "--dry-run").out
    assert said.startswith("task hr.note: 3 job(s) wait behind it; 3 pass their deadline by 20")
    assert ", the first at 20" in said
    assert said.endswith("\nnothing was done\n")
    assert cli("holds").out == "nothing is held\n"
    found = cli(*words, "-o", "json").json
    assert (found["held"], found["dry_run"]) == (["hr.note"], False)
    (delay,) = found["delays"]
    assert (delay["kind"], delay["name"], delay["waiting"], delay["late"], delay["by"]) == (
        "task",
        "hr.note",
        3,
        3,
        found["until"],
    )
    (row,) = cli("holds", "-o", "json").json
    assert (row["kind"], row["name"], row["held_by"], row["held_why"], row["held_until"]) == (
        "task",
        "hr.note",
        "olga",
        "wrong data",
        found["until"],
    )
    assert cli("holds", "-o", "csv").out.splitlines()[1].startswith("task,hr.note,olga,wrong data,20")
    assert "wrong data" in cli("status").out
    assert cli("status", "-o", "json").json["held"][0]["name"] == "hr.note"
    assert "held by olga" in cli("limits", "show", "hr.note").out
    conn.execute("update holds set held_until = null, held_at = now() - interval '3 days'")
    assert "has been held for 3 day(s) by olga" in cli("doctor").out
    assert cli("resume", "task", "hr.note").out == "hr.note: work goes on\n"
    assert cli("resume", "task", "--all").out == "none of them was held by its name\n"
    said = cli("pause", "resource", "sms-gateway", "--why", "x", "--for", "1m").out
    assert "resource sms-gateway: 3 job(s) wait behind it; none passes its deadline by 20" in said


def test_all_queues_stay_held_where_one_is_resumed(note: Note, cli: Cli) -> None:
    assert cli("pause", "queue", "*", "--why", "x").out.endswith("held: *; nothing of it is started any more\n")
    assert cli("queues", "list", "-o", "json").json[0]["state"] == "paused"
    answer = cli("resume", "queue", "bulk")
    assert (answer.code, "all queues are held still" in answer.err) == (4, True)
    assert cli("resume", "queue", "*").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("pause", "task", "hr.nota", "--why", "x"), 3, "did you mean 'hr.note'?"), (("pause", "tenant", "south", "--why", "x"), 3, "'south'"),
        (("pause", "job", "hr.note", "--why", "x"), 2, "'job' is not one of"), (("pause", "task", "hr.note"), 2, "--why"),
        (("pause", "task", "--why", "x"), 2, "NAMES"), (("resume", "task"), 2, "--all"), (("resume", "task", "hr.nota"), 3, "hr.note"),
        (("limits", "show", "nowhere"), 3, "nobody knows"), (("limits", "clear", "nowhere"), 3, "nobody knows"),
    ],
)  # fmt: skip
def test_a_wrong_hold_is_answered_in_words(note: Note, cli: Cli, arguments: tuple[str, ...], code: int, said: str) -> None:
    answer = cli(*arguments)
    assert (answer.code, said in answer.err) == (code, True), answer.err


def test_why_names_the_hold_and_the_limit(note: Note, conn: Conn, cli: Cli) -> None:
    job = str(note.enqueue(1).id)
    cli("pause", "tenant", "north", "--why", "unpaid", "--by", "olga")
    cli("limits", "set", "sms-gateway", "--concurrency", "0", "--why", "x")
    found = cli("jobs", "why", job, "-o", "json").json["because"]
    assert [row["code"] for row in found] == ["tenant_held", "no_worker", "limit_zero"]
    assert "held by olga" in found[0]["sentence"]

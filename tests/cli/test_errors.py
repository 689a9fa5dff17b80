"""One clear sentence and an exit code for everything that can be wrong; never a traceback."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql
from psycopg.conninfo import conninfo_to_dict

from jobwell import App
from jobwell.core.errors import SchemaMismatch, StoreError, StoreRefused, StoreUnavailable
from jobwell.store.database import last_word
from tests.cli.conftest import Cli

Conn = Connection[Any]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("status",), 78, "no database is set"),
        (("status", "--database-url", "mysql://x/y"), 78, "is not a PostgreSQL URL"),
        (("status", "--database-url", "postgresql+psycopg://x/y"), 78, "+driver"),
        (("status", "--database-url", "postgresql://u:geheim@127.0.0.1:1/x"), 75, "cannot be reached"),
        (("status", "--schema", "No Good"), 78, "lower-case"),
        (("status", "--database-url", "postgresql://u:geh%eim@127.0.0.1/x"), 78, "'%25'"),
        (("status", "--database-url", "postgresql://u:p@geheim/w@rd@127.0.0.1/x"), 78, "'%40'"),
        (("status", "--database-url", "postgresql://u/s:geheim@127.0.0.1/x"), 78, "***@127.0.0.1/x"),
        (("jobs", "list", "--since", "99999d"), 2, "too long"),
        (("jobs", "list", "--since", "banana"), 2, "neither a duration"),
        (("worker",), 78, "no app is named"),
        (("up",), 78, "no app is named"),
        (("stats",), 2, "did you mean 'status'"),
        (("jobs", "lst"), 2, "list"),
        (("jobs", "list", "--limit", "0"), 2, "range"),
        (("jobs", "list", "--state", "gone"), 2, "gone"),
        (("worker", "x:y", "--slots", "many"), 2, "many"),
        (("bench", "nothing"), 2, "nothing"),
    ],
)
def test_wrong_input_gets_a_sentence(bare: Cli, arguments: tuple[str, ...], code: int, sentence: str) -> None:
    said = bare(*arguments)
    assert said.code == code
    assert sentence in said.err
    assert "Traceback" not in said.err
    assert "geheim" not in said.err


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("JOBWELL_SLOTS", "0", "slots=0 is out of range"),
        ("JOBWELL_GRACE", "soon", "is not a duration"),
        ("JOBWELL_PROCESSES", "x", "whole number"),
    ],
)
def test_wrong_setting_names_its_origin(bare: Cli, name: str, value: str, sentence: str) -> None:
    said = bare("doctor", **{name: value})
    assert said.code == 78
    assert sentence in said.err
    assert name in said.err


def test_missing_database_and_tables(cli: Cli, app: App) -> None:
    there = app.settings.url
    missing = (
        there.rsplit("/", 1)[0] + "/no_such_database" if "?" not in there else there.replace("/jobwell?", "/no_such_database?")
    )
    said = cli("status", JOBWELL_DATABASE_URL=missing)
    assert said.code == 78
    assert "does not exist" in said.err
    said = cli("status", JOBWELL_SCHEMA="no_such_schema")
    assert said.code == 78
    assert "jobwell migrate" in said.err


def test_worker_refuses_what_cannot_work(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("from jobwell import App\napp = App()\n")
    (tmp_path / "broken.py").write_text("import nowhere_at_all\n")
    (tmp_path / "typo.py").write_text(
        "from jobwell import App\napp = App()\n@app.task(queue='notifcations')\nasync def f() -> None: ...\n"
    )
    for target, sentence in (
        ("absent:app", "no module 'absent'"),
        ("empty:other", "must be a jobwell.App"),
        ("empty:app", "declares no tasks"),
        ("broken:app", "nowhere_at_all"),
        ("typo:app", "did you mean 'notifications'"),
    ):
        said = cli("worker", target)
        assert said.code == 78, said.err
        assert sentence in said.err
        assert "Traceback" not in said.err


def test_unknown_job(cli: Cli) -> None:
    assert cli("jobs", "show", "zz").code == 3
    said = cli("jobs", "show", "01a228ab-083f-723d-9bd0-0bb8f86e964f")
    assert said.code == 3
    assert "there is no job" in said.err


@pytest.fixture
def poor(conn: Conn, database_url: str) -> Iterator[str]:
    """The URL of a role that may see nothing of the store."""
    role = f"jwpoor_{os.getpid()}"
    name = sql.Identifier(role)
    conn.execute(sql.SQL("drop role if exists {}").format(name))
    conn.execute(sql.SQL("create role {} login password 'only-here'").format(name))
    parts = conninfo_to_dict(database_url) | {"user": role, "password": "only-here"}
    query = "&".join(f"{key}={value}" for key, value in parts.items() if key not in ("dbname", "user", "password"))
    yield f"postgresql://{role}:only-here@/{parts['dbname']}?{query}"
    conn.execute(sql.SQL("drop owned by {}").format(name))
    conn.execute(sql.SQL("drop role {}").format(name))


COMMANDS = (
    "status", "jobs list", "quarantine list", "queues list", "workers list", "store size", "store prune --yes", "migrate",
    "jobs cancel --all --yes", "actions list", "jobs enqueue t --arg x=1", "queues pause default --why x",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_role_without_rights_is_told_which_it_lacks(cli: Cli, poor: str, command: str) -> None:
    said = cli(*command.split(), JOBWELL_DATABASE_URL=poor)
    assert said.code == 78, said.err
    assert "the role 'jwpoor_" in said.err
    assert "grant usage on schema" in said.err
    assert "Traceback" not in said.err
    assert "only-here" not in said.err


def test_a_worker_without_rights_ends(cli: Cli, conn: Conn, app: App, poor: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("from jobwell import App\napp = App()\n@app.task(name='t')\nasync def t() -> None: ...\n")
    said = cli("worker", "shop:app", JOBWELL_DATABASE_URL=poor)
    assert said.code == 78, said.err
    role, schema = sql.Identifier(f"jwpoor_{os.getpid()}"), sql.Identifier(app.settings.schema)
    conn.execute(sql.SQL("grant usage on schema {} to {}").format(schema, role))
    conn.execute(sql.SQL("grant select on all tables in schema {} to {}").format(schema, role))
    said = cli("worker", "shop:app", JOBWELL_DATABASE_URL=poor)  # it may look, and not register
    assert said.code == 78, said.err
    assert "grant select, insert, update, delete" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.errors.InsufficientPrivilege("no"), StoreRefused),
        (psycopg.errors.UndefinedTable("no"), SchemaMismatch),
        (psycopg.OperationalError("gone"), StoreUnavailable),
        (psycopg.errors.DivisionByZero("no\nLINE 1"), StoreError),
    ],
)
def test_what_nobody_has_told_is_told_at_last(error: Exception, kind: type[Exception]) -> None:
    told = last_word(error)
    assert type(told) is kind
    assert "LINE" not in str(told)
    assert last_word(ValueError("a fault of our own")) is None


def raw(app: App, tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBWELL_")}
    environ = {**clean, "JOBWELL_DATABASE_URL": app.settings.url, "JOBWELL_SCHEMA": app.settings.schema, "PY": sys.executable}
    return subprocess.run(
        ["sh", "-c", script], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("command", ["status", "status -o json", "jobs list", "queues list -o csv"])
def test_a_full_disk_under_the_output_is_a_sentence(app: App, tmp_path: Path, command: str) -> None:
    said = raw(app, tmp_path, f'"$PY" -m jobwell {command} > /dev/full')
    assert said.returncode == 1, said.stderr
    assert said.stderr.startswith("jobwell: ")
    assert "No space left" in said.stderr
    assert said.stderr.count("\n") == 1
    assert raw(app, tmp_path, f'"$PY" -m jobwell {command} >&-').stderr == ""
    assert raw(app, tmp_path, f'"$PY" -m jobwell {command} >&- 2>&-').returncode == 0


WHY = ("jobs", "why", "01a228ab-083f-723d-9bd0-0bb8f86e964f")


@pytest.mark.parametrize(("column", "command"), [("jobs.gate", WHY), ("workers.tasks", ("status",))])
def test_older_tables_are_told_as_such(cli: Cli, conn: Conn, column: str, command: tuple[str, ...]) -> None:
    table, name = column.split(".")
    change = sql.SQL("alter table {} rename column {} to {}")
    conn.execute(change.format(sql.Identifier(table), sql.Identifier(name), sql.Identifier("former")))
    try:
        said = cli(*command)
        assert said.code == 78, said.err
        assert "or older ones; run `jobwell migrate`" in said.err
    finally:
        conn.execute(change.format(sql.Identifier(table), sql.Identifier("former"), sql.Identifier(name)))


@pytest.mark.parametrize("given", ["option", "variable"])
def test_a_worker_refuses_queues_that_nobody_declares(cli: Cli, tmp_path: Path, given: str) -> None:
    (tmp_path / "shop.py").write_text("from jobwell import App\napp = App()\n@app.task(name='t')\nasync def t() -> None: ...\n")
    if given == "option":
        said = cli("worker", "shop:app", "--queues", "default,bulkk")
    else:
        said = cli("worker", "shop:app", JOBWELL_QUEUES="default,bulkk")
    assert said.code == 78, said.err
    assert "no queue 'bulkk'; did you mean 'bulk'?" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    "command",
    [
        "jobs list --tenant X", "jobs list --queue X", "jobs cancel --tenant X --yes", "jobs cancel --all --yes --why X",
        "jobs cancel --all --yes --by X", "queues pause default --why X", "jobs enqueue X", "jobs enqueue t --arg x=X",
        "workers drain X", "quarantine retry --task X --yes", "store prune --by X",
    ],
)  # fmt: skip
def test_what_is_no_text_is_wrong_usage(app: App, tmp_path: Path, command: str) -> None:
    script = """BAD="$(printf 'a\\377')"; "$PY" -m jobwell """ + command.replace("X", '"$BAD"')
    said = raw(app, tmp_path, script)
    assert said.returncode == 2, said.stderr
    assert "is not UTF-8" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_user_whose_name_is_no_text_acts(app: App, conn: Conn, tmp_path: Path) -> None:
    said = raw(app, tmp_path, """LOGNAME="$(printf 'a\\377')" "$PY" -m jobwell queues pause default --why x""")
    assert said.returncode == 0, said.stderr
    assert conn.execute("select actor from audit").fetchone() == ("a\N{REPLACEMENT CHARACTER}",)


def test_a_hold_out_of_range_is_wrong_usage(cli: Cli) -> None:
    for duration in ("99999999d", "soon"):
        said = cli("queues", "pause", "default", "--why", "x", "--for", duration)
        assert said.code == 2, said.err
        assert "--for" in said.err

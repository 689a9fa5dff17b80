"""Migrations: from many processes at once, interrupted anywhere, as a script, and the handshake of code and tables at start."""

import json
import os
import subprocess
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection, conninfo, sql

from jobwell import App, services, settings
from jobwell.core.errors import SchemaMismatch, StoreError, StoreUnavailable
from jobwell.store import migrations
from jobwell.store.database import Database
from jobwell.store.migrations import migrate, plan, script, steps
from tests.sql.conftest import Fresh
from tests.sql.snapshot import describe
from tests.waiting import until

STEPS = len(steps())
# Each step in the long run; in the short one every fourth, and the newest migrations, which nobody has run yet.
NEW = sum(step.kind == "migration" for step in steps())
AT = [pytest.param(at, marks=() if at % 4 == 0 or NEW - 2 <= at < NEW else pytest.mark.long) for at in range(STEPS)]


def whole(server: "Connection[Any]", database: Database) -> str:
    """Everything about the schema, with the bodies of the functions."""
    return describe(server, database.settings.schema, bodies=True)


def lock_of(database: Database) -> int:
    """The key of the advisory lock that a migration holds."""
    return zlib.crc32(f"jobwell.migrate:{database.settings.schema}".encode())


_RIGHT: dict[str, str] = {}


@pytest.fixture
def right(fresh: Fresh, server: "Connection[Any]") -> str:
    """What an undisturbed migration makes; found once for each server."""
    database = fresh()
    if database.url not in _RIGHT:
        migrate(database)
        _RIGHT[database.url] = whole(server, database)
    return _RIGHT[database.url]


def command(database: Database, *arguments: str) -> list[str]:
    return [
        sys.executable, "-m", "jobwell", *arguments, "--database-url", database.url, "--schema", database.settings.schema]  # fmt: skip


def start(database: Database, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(database, *arguments), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # fmt: skip


# --- once, whoever and however often ------------------------------------------------------------------------------------


def test_a_second_migration_has_nothing_to_do(fresh: Fresh, server: Connection[Any]) -> None:
    database = fresh()
    said: list[str] = []
    assert len(migrate(database, say=said.append)) == len(said) == STEPS
    before = whole(server, database)
    assert migrate(database, say=said.append) == []
    assert len(said) == STEPS
    assert whole(server, database) == before


@pytest.mark.timeout(240)
def test_ten_processes_at_once(fresh: Fresh, server: Connection[Any], right: str) -> None:
    database = fresh()
    processes = [start(database, "migrate", "-o", "json") for _ in range(10)]
    results = [(process.communicate(timeout=200), process.returncode) for process in processes]
    assert [code for _, code in results] == [0] * 10, results
    assert sum(len(json.loads(out)["steps"]) for (out, _), _ in results) == STEPS
    assert whole(server, database) == right


def test_ten_threads_at_once(fresh: Fresh, server: Connection[Any], right: str) -> None:
    database = fresh()
    together = threading.Barrier(10)

    def one(_: int) -> int:
        together.wait()
        return len(migrate(Database(database.settings)))

    with ThreadPoolExecutor(10) as pool:
        assert sum(pool.map(one, range(10))) == STEPS
    assert whole(server, database) == right


# --- interrupted ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", AT)
def test_an_interruption_before_any_step_leaves_nothing_half_done(
    fresh: Fresh, server: Connection[Any], right: str, at: int
) -> None:
    """The connection is cut when the step is announced; the next run does the rest."""
    database = fresh()
    said: list[str] = []

    def cut(step: str) -> None:
        said.append(step)
        if len(said) == at + 1:
            server.execute(
                "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and objid = %s::bigint::oid",
                [lock_of(database)],
            )

    with pytest.raises(StoreUnavailable):
        migrate(database, say=cut)
    assert len(plan(server, database.settings.schema)) == STEPS - at
    assert len(migrate(database)) == STEPS - at
    assert whole(server, database) == right


@pytest.mark.parametrize("at", AT)
def test_a_server_that_breaks_inside_a_step_undoes_all_of_it(
    fresh: Fresh, server: Connection[Any], right: str, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """The cut comes at the end of the step's own statements, before its record."""
    database = fresh()
    true = steps()
    broken = [
        migrations.Step(step.kind, step.name, f"{step.text};\nselect pg_terminate_backend(pg_backend_pid());")
        if n == at
        else step
        for n, step in enumerate(true)
    ]
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "steps", lambda: broken)
        with pytest.raises(StoreUnavailable):
            migrate(database)
    done = {row.name for row in true} - {step.name for step in plan(server, database.settings.schema)}
    assert done == {step.name for step in true[:at]}
    assert len(migrate(database)) == STEPS - at
    assert whole(server, database) == right


KILLED = """
import sys
from jobwell import settings
from jobwell.store.database import Database
from jobwell.store.migrations import migrate

def say(step):
    print(step, flush=True)
    if step.endswith("finish"):
        sys.stdin.read()

migrate(Database(settings.load({"database_url": sys.argv[1], "schema": sys.argv[2]})), say=say)
"""


def test_a_killed_migration_frees_its_lock_and_the_next_goes_on(fresh: Fresh, server: Connection[Any], right: str) -> None:
    database = fresh()
    arguments = [sys.executable, "-c", KILLED, database.url, database.settings.schema]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while not process.stdout.readline().strip().endswith("finish"):
            pass
        waiting = start(database, "migrate", "-o", "json")
        until(
            lambda: server.execute(
                "select 1 from pg_stat_activity where application_name = 'jobwell migrate' and query like '%%try_advisory%%'"
            ).fetchall()
        )
        process.kill()
        out, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 0, err
    assert 0 < len(json.loads(out)["steps"]) < STEPS
    assert whole(server, database) == right


def test_a_migration_that_never_gets_the_lock_says_so(
    fresh: Fresh, server: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = fresh()
    monkeypatch.setattr(migrations, "LOCK_WAIT", 0.2)
    server.execute("select pg_advisory_lock(%s)", [lock_of(database)])
    with pytest.raises(StoreError, match="nothing was changed here"):
        migrate(database)
    server.execute("select pg_advisory_unlock(%s)", [lock_of(database)])
    assert len(migrate(database)) == STEPS


def test_an_alter_does_not_wait_for_ever_behind_a_reader(
    fresh: Fresh, server: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = fresh()
    migrate(database)
    schema = database.settings.schema
    blocked = migrations.Step("functions", "blocked", "alter table jobwell.jobs add column more int")
    monkeypatch.setattr(migrations, "LOCK_TIMEOUT", "100ms")
    monkeypatch.setattr(migrations, "steps", lambda: [*steps(), blocked])
    with psycopg.connect(database.url) as reader:
        reader.execute(f"select from {schema}.jobs")  # type: ignore[call-overload]
        with pytest.raises((StoreError, psycopg.Error), match="lock"):
            migrate(database)
    assert [step.name for step in migrate(database)] == ["blocked"]


# --- as a script ---------------------------------------------------------------------------------------------------------


def test_the_script_for_a_dba_makes_the_same(fresh: Fresh, server: Connection[Any], right: str) -> None:
    database = fresh()
    printed = subprocess.run(command(database, "migrate", "--sql"), text=True, capture_output=True, check=True).stdout
    assert not server.execute("select to_regnamespace(%s)", [database.settings.schema]).fetchone()[0]  # type: ignore[index]
    server.execute(printed)  # type: ignore[call-overload]
    assert whole(server, database) == right
    assert plan(server, database.settings.schema) == []
    assert migrate(database) == []


def test_the_script_holds_only_what_is_missing(fresh: Fresh, server: Connection[Any], right: str) -> None:
    database = fresh()
    migrate(database)
    schema = database.settings.schema
    server.execute(f"update {schema}.migrations set checksum = 'older' where name = 'finish'")  # type: ignore[call-overload]
    server.execute(f"drop function {schema}.finish")  # type: ignore[call-overload]
    wanted = plan(server, schema)
    assert [step.name for step in wanted] == ["finish"]
    server.execute(script(schema, wanted))  # type: ignore[call-overload]
    assert whole(server, database) == right
    assert plan(server, schema) == []


# --- who may -------------------------------------------------------------------------------------------------------------


def test_a_role_that_owns_only_its_schema_can_migrate(fresh: Fresh, server: Connection[Any], right: str) -> None:
    database = fresh()
    schema = sql.Identifier(database.settings.schema)
    role = sql.Identifier(f"jwrole_{os.getpid()}")
    server.execute(sql.SQL("create role {} login password 'x'").format(role))
    try:
        server.execute(sql.SQL("create schema {} authorization {}").format(schema, role))
        parts = conninfo.conninfo_to_dict(database.url) | {"user": f"jwrole_{os.getpid()}", "password": "x"}
        query = "&".join(f"{name}={value}" for name, value in parts.items())
        theirs = Database(settings.load({"database_url": f"postgresql:///?{query}", "schema": database.settings.schema}))
        assert len(migrate(theirs)) == STEPS
        assert whole(server, database) == right
    finally:
        server.execute(sql.SQL("drop owned by {}").format(role))
        server.execute(sql.SQL("drop role {}").format(role))


def test_an_old_server_is_refused(fresh: Fresh, server: Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    database = fresh()
    monkeypatch.setattr(migrations, "OLDEST_SERVER", 990000)
    with pytest.raises(StoreError, match="Jobwell needs 15 or newer"):
        migrate(database)
    assert server.execute("select to_regnamespace(%s)", [database.settings.schema]).fetchall() == [(None,)]


# --- the handshake -------------------------------------------------------------------------------------------------------


def start_worker(database: Database) -> None:
    """As the command does; it must refuse before it registers."""
    app = App(database.url, schema=database.settings.schema)

    @app.task(name="note")
    async def note() -> None: ...

    services.run_worker(app)


def alter(server: "Connection[Any]", database: Database, statement: str) -> None:
    server.execute(statement.format(database.settings.schema))  # type: ignore[call-overload]


def test_a_worker_refuses_a_schema_without_tables(fresh: Fresh) -> None:
    with pytest.raises(SchemaMismatch, match="has no Jobwell tables; run `jobwell migrate`"):
        start_worker(fresh())


def test_a_worker_refuses_older_tables(fresh: Fresh, server: Connection[Any]) -> None:
    database = fresh()
    migrate(database)
    alter(server, database, "delete from {}.migrations where name = 'claim'")
    with pytest.raises(SchemaMismatch, match=r"lacks 1 step\(s\) of this release \(claim\); run `jobwell migrate`"):
        start_worker(database)


def test_a_worker_refuses_newer_tables(fresh: Fresh, server: Connection[Any]) -> None:
    database = fresh()
    migrate(database)
    alter(server, database, "insert into {}.migrations values ('migration', '9999_later', 'x')")
    with pytest.raises(SchemaMismatch, match=r"made by a newer release \(9999_later\).*deploy the newer release"):
        start_worker(database)
    with pytest.raises(SchemaMismatch, match="newer release"):
        migrate(database)


def test_the_command_says_it_in_one_sentence_and_code(fresh: Fresh, tmp_path: Path) -> None:
    database = fresh()
    (tmp_path / "shop.py").write_text(
        "from jobwell import App\napp = App('')\n@app.task\nasync def note() -> None: ...\n", encoding="utf-8"
    )
    process = start(database, "worker", "shop:app", "--log", "json", cwd=tmp_path)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 78, err
    said = [line for line in err.splitlines() if "migrate" in line]
    assert len(said) == 1, err
    assert "Traceback" not in err


def test_functions_are_versioned_by_content(fresh: Fresh, server: Connection[Any], right: str) -> None:
    """Case B7: a release that only changes a function reaches tables that were migrated long ago."""
    database = fresh()
    migrate(database)
    alter(server, database, "create or replace function {}.wake(p_queues text[]) returns void language sql as 'select'")
    alter(server, database, "update {}.migrations set checksum = 'of an older release' where name = 'housekeeping'")
    assert [(step.kind, step.name) for step in migrate(database)] == [("functions", "housekeeping")]
    assert whole(server, database) == right


def test_a_changed_function_is_applied_by_the_next_release(
    fresh: Fresh, server: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = fresh()
    migrate(database)
    changed = [
        migrations.Step(step.kind, step.name, step.text.replace("pg_notify(", "pg_notify(/* changed */ ")) for step in steps()
    ]
    monkeypatch.setattr(migrations, "steps", lambda: changed)
    assert [step.name for step in migrate(database)] == ["housekeeping"]
    assert "/* changed */" in whole(server, database)


def test_functions_of_a_newer_release_are_left_alone(fresh: Fresh, server: Connection[Any]) -> None:
    """In a deploy old and new workers run side by side: the old ones start, and do not put their own functions back."""
    database = fresh()
    migrate(database)
    alter(server, database, "create or replace function {}.wake(p_queues text[]) returns void language sql as 'select'")
    alter(server, database, "update {}.migrations set checksum = '99:of a newer release' where name = 'housekeeping'")
    before = whole(server, database)
    assert migrate(database) == []
    migrations.check(server, database.settings.schema)
    assert whole(server, database) == before


def test_functions_of_an_older_version_are_replaced(fresh: Fresh, server: Connection[Any], right: str) -> None:
    database = fresh()
    migrate(database)
    alter(server, database, "create or replace function {}.wake(p_queues text[]) returns void language sql as 'select'")
    alter(server, database, "update {}.migrations set checksum = '0:of an older release' where name = 'housekeeping'")
    with pytest.raises(SchemaMismatch, match="housekeeping"):
        migrations.check(server, database.settings.schema)
    assert [step.name for step in migrate(database)] == ["housekeeping"]
    assert whole(server, database) == right


def test_a_migration_that_was_changed_afterwards_is_refused(fresh: Fresh, server: Connection[Any]) -> None:
    database = fresh()
    migrate(database)
    alter(server, database, "update {}.migrations set checksum = 'x' where kind = 'migration'")
    before = whole(server, database)
    with pytest.raises(SchemaMismatch, match="has run with another content"):
        migrate(database)
    assert whole(server, database) == before


def test_schemas_of_one_database_do_not_touch_each_other(fresh: Fresh, server: Connection[Any], right: str) -> None:
    one, two = fresh(), fresh()
    migrate(one)
    migrate(two)
    ids = [server.execute(f"select id from {each.settings.schema}.store").fetchall() for each in (one, two)]  # type: ignore[call-overload]
    assert ids[0] != ids[1]
    alter(server, one, "drop schema {} cascade")
    assert whole(server, two) == right

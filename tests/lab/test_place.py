"""The throw-away place: of its own, one at a time, and gone afterwards whatever happens."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from jobwell import settings
from jobwell.core.errors import JobwellError, StoreRefused
from jobwell.lab.bench.place import DATABASE, SCHEMA, Bench, frozen, open_bench
from jobwell.settings import Settings
from jobwell.store.statements import Statements
from tests.cli.conftest import call
from tests.lab.conftest import Left
from tests.waiting import until

Conn = psycopg.Connection[Any]


def silent(line: str) -> None:
    """Nobody listens."""


@pytest.mark.parametrize("own_database", [False, True])
@pytest.mark.parametrize("error", [JobwellError("no"), KeyboardInterrupt(), psycopg.OperationalError("gone")])
def test_nothing_stays_after_an_error(given: Settings, left: Left, own_database: bool, error: BaseException) -> None:
    with pytest.raises((JobwellError, KeyboardInterrupt)), open_bench(given, silent, own_database=own_database) as bench:
        bench.fill(10)
        assert f"schema {SCHEMA}" in left() or own_database
        assert (f"database {DATABASE}" in left()) == own_database
        assert bench.value("live_jobs") == 10
        raise error
    assert left() == []


def test_nothing_stays_after_an_error_inside_a_statement(given: Settings, left: Left) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero), open_bench(given, silent) as bench, bench.conn.transaction():
        bench.run("live_jobs")
        bench.conn.execute("select 1 / 0")
    assert left() == []


def test_what_a_killed_run_left_behind_goes(given: Settings, server: Conn, left: Left) -> None:
    note = Statements("jobwell")["bench.note_database"]
    server.execute(sql.SQL("create database {} template template0").format(sql.Identifier(DATABASE)))
    server.execute(note)
    server.execute(sql.SQL("create schema {}").format(sql.Identifier(SCHEMA)))
    server.execute(Statements("jobwell")["bench.note_schema"])
    with open_bench(given, silent, own_database=True) as bench:
        assert bench.conn.info.dbname == DATABASE
    with open_bench(given, silent) as bench:
        assert bench.conn.info.dbname == server.info.dbname
    assert left() == []


def test_a_database_of_somebody_else_is_not_touched(given: Settings, server: Conn) -> None:
    name = sql.Identifier(DATABASE)
    server.execute(sql.SQL("create database {} template template0").format(name))
    try:
        with pytest.raises(JobwellError, match="that no benchmark has made"), open_bench(given, silent, own_database=True):
            raise AssertionError
        assert server.execute("select 1 from pg_database where datname = %s", [DATABASE]).fetchall()
    finally:
        server.execute(sql.SQL("drop database {}").format(name))


@pytest.mark.parametrize("note", [None, "of the accountants"])
def test_a_schema_of_somebody_else_is_not_touched(given: Settings, server: Conn, note: str | None) -> None:
    name = sql.Identifier(SCHEMA)
    server.execute(sql.SQL("create schema {}").format(name))
    try:
        server.execute(sql.SQL("create table {}.precious ()").format(name))
        server.execute(sql.SQL("comment on schema {} is {}").format(name, note))
        with pytest.raises(JobwellError, match="that no benchmark has made"), open_bench(given, silent):
            raise AssertionError
        assert server.execute("select to_regclass(%s)", [f"{SCHEMA}.precious"]).fetchone() != (None,)
    finally:
        server.execute(sql.SQL("drop schema {} cascade").format(name))


@pytest.fixture
def poor(server: Conn, database_url: str) -> Iterator[str]:
    """The URL of a role that may do nothing."""
    role = f"jwbench_{os.getpid()}"
    name = sql.Identifier(role)
    server.execute(sql.SQL("drop role if exists {}").format(name))
    server.execute(sql.SQL("create role {} login password 'only-here'").format(name))
    parts = conninfo_to_dict(database_url) | {"user": role, "password": "only-here"}
    query = "&".join(f"{key}={value}" for key, value in parts.items() if key not in ("dbname", "user", "password"))
    try:
        yield f"postgresql://{role}:only-here@/{parts['dbname']}?{query}"
    finally:
        server.execute(sql.SQL("drop owned by {}").format(name))
        server.execute(sql.SQL("drop role {}").format(name))


def test_a_role_that_may_not_create_a_schema_is_told_so(poor: str) -> None:
    with pytest.raises(StoreRefused, match="give a role that may create one"):  # noqa: SIM117  the error comes at the start
        with open_bench(settings.load({"database_url": poor}), silent):
            raise AssertionError


def test_a_role_that_may_not_create_a_database_is_told_and_served(poor: str, server: Conn, left: Left) -> None:
    role = sql.Identifier(str(conninfo_to_dict(poor)["user"]))
    server.execute(sql.SQL("grant create on database {} to {}").format(sql.Identifier(server.info.dbname), role))
    said: list[str] = []
    with open_bench(settings.load({"database_url": poor}), said.append, own_database=True) as bench:
        assert bench.conn.info.dbname == server.info.dbname
        assert left() == [f"schema {SCHEMA}"]
    assert "may not create databases" in " ".join(said)
    assert left() == []


def test_a_second_one_waits(given: Settings, server: Conn) -> None:
    turn = Statements("jobwell")["bench.take_turn"]
    until(lambda: server.execute(turn).fetchone() == (True,), what="no other benchmark")
    said: list[str] = []
    names: list[str] = []

    def second() -> None:
        with open_bench(given, said.append) as bench:
            names.append(bench.conn.info.dbname)

    thread = threading.Thread(target=second)
    thread.start()
    until(lambda: said)
    assert "another benchmark runs" in said[0]
    assert names == []
    server.close()
    thread.join(20)
    assert names


def test_held_workers_go_on_after_an_error(given: Settings) -> None:
    code = "import sys; sys.stdin.read()"
    with open_bench(given, silent) as bench, subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as child:
        process = psutil.Process(child.pid)
        with pytest.raises(KeyboardInterrupt), frozen(bench, [child.pid]):
            until(lambda: process.status() == psutil.STATUS_STOPPED)
            raise KeyboardInterrupt
        until(lambda: process.status() != psutil.STATUS_STOPPED)
        child.communicate(b"\n")


def test_a_worker_that_ends_is_noticed(given: Settings, left: Left) -> None:
    def kill(bench: Bench) -> None:
        with bench.workers(target="jobwell.lab.nothing:app"):
            raise AssertionError

    with pytest.raises(JobwellError, match="the worker ended with code 78"), open_bench(given, silent) as bench:
        kill(bench)
    assert left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_behind(database_url: str, left: Left, tmp_path: Path, number: signal.Signals) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBWELL_")}
    command = [sys.executable, "-m", "jobwell", "bench", "pinned", "--jobs", "200", "--seconds", "600"]
    environ = {**clean, "JOBWELL_DATABASE_URL": database_url}
    with subprocess.Popen(command, env=environ, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        said = ""
        while "it is held" not in said:
            line = running.stderr.readline()
            assert line, said
            said += line
        assert f"database {DATABASE}" in left()
        family = psutil.Process(running.pid).children(recursive=True)
        assert len(family) >= 2  # the supervisor and its worker
        running.send_signal(number)
        rest = running.stderr.read()
        assert running.wait(30) == 130, rest
    assert "Traceback" not in rest
    assert rest.strip().endswith("stopped")
    assert left() == []
    assert [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []


def test_several_runs_are_put_together(database_url: str, tmp_path: Path) -> None:
    environ = {"JOBWELL_DATABASE_URL": database_url}
    told = call(("bench", "latency", "--jobs", "10", "--repeat", "2", "-o", "json"), environ, tmp_path)
    assert told.code == 0
    found = told.json
    assert [run["scenario"] for run in found["runs"]] == ["latency", "latency"]
    spread = found["summary"]["p50_ms"]
    values = sorted(run["p50_ms"] for run in found["runs"])
    assert (spread["lowest"], spread["highest"]) == (values[0], values[1])
    assert spread["lowest"] <= spread["median"] <= spread["highest"]
    assert found["targets"]["p50_ms"]["met"] is (spread["median"] <= 3)
    shown = call(("bench", "enqueue-single", "--jobs", "10"), environ, tmp_path)
    assert shown.code == 0
    assert "≥ 0.8" in shown.out
    assert "✓" in shown.out or "✗" in shown.out


@pytest.mark.parametrize(
    ("arguments", "environ", "code", "sentence"),
    [
        (("bench", "drain"), {}, 78, "no database is set"),
        (("bench", "drain"), {"JOBWELL_DATABASE_URL": "postgresql://u:geheim@127.0.0.1:1/x"}, 75, "cannot be reached"),
        (("bench", "drain", "--seconds", "9"), {}, 2, "it is for pinned"),
        (("bench", "pinned", "--seconds", "0"), {}, 2, "range"),
        (("bench", "pined"), {}, 2, "pinned"),
        (("bench",), {}, 2, "SCENARIO"),
    ],
)
def test_wrong_input_gets_a_sentence(
    tmp_path: Path, arguments: tuple[str, ...], environ: dict[str, str], code: int, sentence: str
) -> None:
    said = call(arguments, environ, tmp_path)
    assert said.code == code
    assert sentence in said.err
    assert "Traceback" not in said.err
    assert "geheim" not in said.err


def test_the_help_tells_all_scenarios_with_their_numbers(tmp_path: Path) -> None:
    from jobwell.lab.bench.scenarios import SCENARIOS

    told = call(("bench", "--help"), {}, tmp_path).out
    lines = [line.split() for line in told.splitlines()]
    for name, scenario in SCENARIOS.items():
        begins = [*name.replace("-dedup", " --dedup").split(), f"{scenario.jobs:,}"]
        [line] = [line for line in lines if line[: len(begins)] == begins]
        assert len(line) > 5, line

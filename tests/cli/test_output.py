"""What is printed: for people without what a terminal obeys, for programs in one form whatever the locale, and no fuss on a pipe."""

import csv
import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobwell import App
from jobwell.cli.output import csv_out, json_out, shown, size
from jobwell.core.ids import new_id
from tests.cli.conftest import Cli
from tests.cli.test_seeing import declare, work_off

Conn = psycopg.Connection[tuple[Any, ...]]
EVIL = "=1+1\x1b[2J\u202e\x9b2J\r-"


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"), ("+49 30", "'+49 30"), ("-x", "'-x"), ("@a", "'@a"), ("\t=1", "'\t=1"), ("a=1", "a=1"), (-5, "-5"), (-0.5, "-0.5"),
        (None, ""), (True, "true"), (["a", "=b"], "a,=b"), (["=a"], "'=a"), ('say "x"', 'say "x"'), ("two\nlines", "two\nlines"),
        (datetime(2030, 1, 31, 13, 0, 0, 5, tzinfo=UTC), "2030-01-31T13:00:00.000005+00:00"), ("Ünï 漢", "Ünï 漢"), ("\x1b[2J", "\N{REPLACEMENT CHARACTER}[2J"),
    ],
)  # fmt: skip
def test_a_cell_of_csv(value: Any, cell: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    csv_out([{"first": value, "second": 1}], ("first", "second"))
    said = capfdbinary.readouterr().out.decode()
    assert said.startswith("first,second\r\n")
    assert said.endswith("\r\n")
    assert list(csv.reader(io.StringIO(said, newline=""))) == [["first", "second"], [cell, "1"]]


def test_json_holds_nothing_that_a_terminal_obeys(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    json_out({EVIL: [EVIL, "Ünï 漢"]})
    said = capfdbinary.readouterr().out.decode()
    assert not set(said) & {"\x1b", "\x9b", "\u202e", "\r"}
    assert json.loads(said) == {EVIL: [EVIL, "Ünï 漢"]}


def test_values_for_people() -> None:
    assert "\x1b" not in shown(EVIL)
    assert "\r" not in shown([EVIL])
    assert [size(value) for value in (0, 1023, 2048, 150 * 1024, 3 << 20, 5 << 40)] == [
        "0 B", "1023 B", "2.0 kB", "150 kB", "3.0 MB", "5120 GB"]  # fmt: skip


def test_every_list_in_every_form_on_an_empty_store(cli: Cli) -> None:
    for command in (("jobs", "list"), ("quarantine", "list"), ("workers", "list"), ("status",), ("store", "size")):
        for form in ("table", "json", "csv"):
            said = cli(*command, "-o", form)
            assert said.code == 0, said.err
            assert said.out
            if form == "json":
                assert said.json is not None
            if form == "csv":
                assert len(next(csv.reader(io.StringIO(said.out)))) > 3
        assert cli(*command, "-o", "xml").code == 2


def test_hostile_texts_in_every_list(app: App, conn: Conn, cli: Cli) -> None:
    good, bad = declare(app)
    bad.using(tenant=EVIL).enqueue(1, "x")
    job = good.using(tenant=EVIL).enqueue(EVIL)
    work_off(app, conn)
    conn.execute(f"insert into {app.settings.schema}.queues (name, paused_by, paused_why) values ('bulk', %s, %s)", [EVIL, EVIL])  # type: ignore[call-overload]
    conn.execute(f"update {app.settings.schema}.quarantine set message = %s, traceback = %s, error_type = %s", [EVIL] * 3)  # type: ignore[call-overload]
    failed = cli("quarantine", "list", "-o", "json").json[0]["id"]
    for command in (
        ("jobs", "list"),
        ("jobs", "show", str(job.id)),
        ("jobs", "show", failed),
        ("jobs", "why", failed),
        ("quarantine", "list"),
        ("status",),
    ):
        for form in ("table", "json", *(("csv",) if "show" not in command else ())):
            said = cli(*command, "-o", form)
            assert said.code == 0, said.err
            assert not set(said.out + said.err) & {"\x1b", "\x9b", "\u202e"}, (command, form)


def test_filters_all_combine(app: App, conn: Conn, cli: Cli) -> None:
    good, bad = declare(app)
    for number in (1, 2):
        bad.enqueue(number, "north")
    bad.enqueue(0, "south")
    work_off(app, conn)
    kept = [good.enqueue("x") for _ in range(3)]
    schema = app.settings.schema
    conn.execute(f"update {schema}.jobs set enqueued_at = enqueued_at - interval '3 hours' where id = %s", [kept[0].id])  # type: ignore[call-overload]

    def count(*filters: str) -> int:
        said = cli("jobs", "list", "-o", "json", *filters)
        assert said.code == 0, said.err
        return len(said.json)

    fingerprint = conn.execute(f"select fingerprint from {schema}.quarantine where reason = 'exhausted' limit 1").fetchone()[0]  # type: ignore[index]
    assert count() == 6
    assert count("--reason", "exhausted") == count("--fingerprint", fingerprint) == 2
    assert count("--reason", "rejected", "--tenant", "south", "--task", "bad", "--since", "1h") == 1
    assert count("--reason", "rejected", "--fingerprint", fingerprint) == 0
    assert count("--reason", "exhausted", "--state", "ready") == 0
    assert (count("--since", "1h"), count("--until", "1h"), count("--until", "4h")) == (5, 1, 0)
    moment = (datetime.now(UTC) - timedelta(hours=2)).isoformat(timespec="minutes")
    assert (count("--since", moment), count("--until", moment)) == (5, 1)
    assert count("--since", "2000-01-31") == 6
    assert count("--id", str(kept[0].id), "--id", str(kept[1].id)) == 2
    assert count("--id", str(kept[0].id), "--state", "failed") == 0
    assert cli("jobs", "list", "--since", "yesterday").code == 2
    assert cli("jobs", "list", "--id", "zz").code == 3
    page = cli("jobs", "list", "--limit", "4", "-o", "csv")
    assert "--before" in page.err
    last = page.out.splitlines()[-1].split(",")[0]
    assert count("--before", last) == 2


def environment(app: App, **more: str) -> dict[str, str]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JOBWELL_", "LC_", "LANG", "PYTHONUTF8", "PYTHONIOENCODING"))
    }
    return clean | {"JOBWELL_DATABASE_URL": app.settings.url, "JOBWELL_SCHEMA": app.settings.schema, **more}


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_a_reader_that_leaves_is_no_failure(app: App, conn: Conn, tmp_path: Path, form: str) -> None:
    good, _ = declare(app)
    app.enqueue_many(good.job("x" * 500) for _ in range(900))
    command = f"{sys.executable} -m jobwell jobs list --limit 900 -o {form} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], env=environment(app), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert "Broken" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "locale", [{"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii"}]
)
@pytest.mark.parametrize("columns", ["200", "1"])
def test_any_locale_and_any_width(app: App, conn: Conn, tmp_path: Path, locale: dict[str, str], columns: str) -> None:
    good, _ = declare(app)
    good.using(tenant="Әлем 漢字").enqueue("x")
    for form in ("table", "json", "csv"):
        command = [sys.executable, "-m", "jobwell", "jobs", "list", "-o", form]
        done = subprocess.run(
            command, env=environment(app, COLUMNS=columns, **locale), cwd=tmp_path, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        if form != "table":
            assert "Әлем 漢字" in done.stdout.decode()
    wrong = subprocess.run(
        [sys.executable, "-m", "jobwell", "jobs", "show", "漢字"],
        env=environment(app, **locale),
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert wrong.returncode == 3
    assert b"Traceback" not in wrong.stderr


@pytest.mark.parametrize("command", [
    ("jobs", "list"), ("jobs", "why", str(new_id())), ("jobs", "enqueue", "x"), ("workers", "list"), ("workers", "show", "x"), ("store", "size"),
    ("store", "prune"), ("status",), ("quarantine", "list"), ("move", "--to", "postgresql://nobody@127.0.0.1:1/x")])  # fmt: skip
def test_an_unreachable_database_and_missing_tables(bare: Cli, cli: Cli, command: tuple[str, ...]) -> None:
    said = bare(*command, JOBWELL_DATABASE_URL="postgresql://u:geheim@127.0.0.1:1/x")
    assert said.code == 75
    assert "geheim" not in said.err
    assert "Traceback" not in said.err
    if command[0] != "move":
        missing = cli(*command, JOBWELL_SCHEMA="nothing_there")
        assert missing.code == 78, missing.err
        assert "jobwell migrate" in missing.err

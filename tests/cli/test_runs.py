"""`jobwell runs …` as its user calls it, with a real worker beside it."""

import contextlib
import csv
import io
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openpyxl
import psycopg
import pytest

from jobwell import App
from jobwell.cli import main
from tests.cli.conftest import Cli, Said
from tests.waiting import until

Conn = psycopg.Connection[tuple[Any, ...]]

CODE = """
from pathlib import Path

from pydantic import BaseModel

from jobwell import App

app = App()


class Transfer(BaseModel):
    to: str


class Employee(BaseModel):
    number: int
    name: str
    department: str
    email: str | None = None


transfer = app.bulk("hr.transfer", params=Transfer, item=Employee, key="number")


@transfer.stage(queue="bulk", chunk=10)
async def apply(ctx, items):
    for item in items:
        if item.data.number % 20 == 0 and not Path("unlocked").exists():
            item.fail("locked", "=it is locked")


@transfer.stage(queue="notifications", after=apply)
async def notify(ctx, item):
    if not item.data.email:
        item.fail("no_address", "there is no address")


@transfer.finish(queue="reports")
async def recalculate(ctx, summary): ...


found = app.bulk("hr.found", key="n")


@found.prepare
def find(ctx, params):
    yield {"n": 1}


@found.stage
async def look(ctx, item): ...
"""
PARAMS = '{"to": "Astana"}'


def people(folder: Path, count: int, name: str = "people.csv", *, bad: int = 0) -> None:
    """A file of them: every tenth of Finance, every 25th without an address, the last ones without a number."""
    lines = ["number,name,department,email"]
    for number in range(1, count + 1):
        email = "" if number % 25 == 1 else f"p{number}@example.org"
        lines.append(f"{number},=name {number},{'Finance' if number % 10 == 0 else 'Sales'},{email}")
    lines += [f"x{number},name,Sales," for number in range(bad)]
    (folder / name).write_text("\n".join(lines) + "\n")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The folder with the application and a file of a hundred people."""
    (tmp_path / "shop.py").write_text(CODE)
    people(tmp_path, 100)
    return tmp_path


@pytest.fixture
def cli(app: App, shop: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line in this process: there are many calls. Those beside it are processes."""
    monkeypatch.chdir(shop)
    monkeypatch.syspath_prepend(str(shop))
    for name, value in environ(app).items():
        if name.startswith("JOBWELL_"):
            monkeypatch.setenv(name, value)

    def call(*arguments: str) -> Said:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as told:
            main(list(arguments))
        if "shop" in sys.modules:
            sys.modules.pop("shop").app.close()
        for stream in (out, err):
            stream.flush()
        code = told.value.code
        assert isinstance(code, int)
        return Said(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]  a BytesIO

    return call


def environ(app: App) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBWELL_")}
    return clean | {"JOBWELL_DATABASE_URL": app.settings.url, "JOBWELL_SCHEMA": app.settings.schema, "COLUMNS": "200"}


@contextlib.contextmanager
def working(app: App, folder: Path) -> Iterator[None]:
    """A real worker of the application, until the end of the block."""
    with (folder / "worker.log").open("wb") as log:
        command = [sys.executable, "-m", "jobwell", "worker", "shop:app", "--slots", "20"]
        worker = subprocess.Popen(command, cwd=folder, env=environ(app), stdout=log, stderr=log)
        try:
            yield
        finally:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(30) == 0, (folder / "worker.log").read_text()


def start(cli: Cli, *more: str) -> str:
    said = cli("runs", "start", "hr.transfer", "--app", "shop:app", "--file", "people.csv", "--params", PARAMS, *more)
    assert said.code == 0, said.err
    return said.out.strip()


def test_from_start_to_the_end_with_errors_retry_and_reports(app: App, conn: Conn, cli: Cli, shop: Path) -> None:
    run = start(cli, "--key", "transfer-1", "--by", "olga", "--why", "a new office")
    waiting = cli("runs", "show", run, "-o", "json").json
    assert (waiting["status"], waiting["total"], waiting["started_by"], waiting["why"]) == (
        "running",
        100,
        "olga",
        "a new office",
    )
    assert start(cli, "--key", "transfer-1") == run
    with working(app, shop):
        watched = cli("runs", "watch", "transfer-1")
        assert watched.code == 10
        last = watched.out.splitlines()
        assert last[-3].startswith("100.0%  completed with errors  apply 100/100  notify 95/95  errors 9")
        assert last[-2:] == ["  5 failed in apply: locked", "  4 failed in notify: no_address"]
        shown = cli("runs", "show", run[:18])
        for words in ("completed with errors", "100 / 100", "95 / 95", f"jobwell runs retry {run[:13]} --code locked"):
            assert words in shown.out
        (listed,) = cli("runs", "list", "--operation", "hr.transfer", "-o", "json").json
        assert (listed["percent"], listed["failed"], listed["key"]) == (100.0, 9, "transfer-1")
        assert cli("runs", "show", run, "--item", "20", "-o", "json").json[0]["message"] == "=it is locked"
        _errors(cli, run, shop)
        (shop / "unlocked").touch()
        refused = cli("runs", "retry", run, "--code", "locked")
        assert refused.code == 2
        assert "5 failed item(s)" in refused.err
        assert (
            cli("runs", "retry", run, "--item", "1", "--item", "20", "--code", "locked", "--yes", "-o", "json").json["retried"]
            == 1
        )
        assert cli("runs", "retry", run, "--code", "locked", "--yes", "--by", "olga", "--why", "unlocked").code == 0
        assert cli("runs", "retry", run, "--code", "locked", "--yes", "-o", "json").json["retried"] == 0
        assert cli("runs", "watch", run, "-o", "json").out.splitlines()[-1].startswith('{"id":')
    card = cli("runs", "show", "hr.transfer:transfer-1", "-o", "json").json
    assert [(stage["done"], stage["failed"]) for stage in card["stages"]] == [(100, 0), (96, 4)]
    assert card["reasons"] == [{"stage": "notify", "code": "no_address", "items": 4}]
    audited = conn.execute(f"select action, actor, detail ->> 'why' from {app.settings.schema}.audit order by id").fetchall()
    assert audited[0] == ("runs.start", "olga", "a new office")
    assert ("runs.retry", "olga", "unlocked") in audited
    _reports(cli, run, shop)


def _errors(cli: Cli, run: str, shop: Path) -> None:
    table = cli("runs", "errors", run, "--limit", "3")
    assert "locked" in table.out
    assert "… and 6 more" in table.err
    said = cli("runs", "errors", run, "-f", "csv").out
    rows = list(csv.DictReader(io.StringIO(said.removeprefix("\ufeff"))))
    assert [row["key"] for row in rows] == ["20", "40", "60", "80", "100", "1", "26", "51", "76"]
    assert (rows[0]["message"], rows[0]["name"], rows[0]["department"]) == ("'=it is locked", "'=name 20", "Finance")
    assert cli("runs", "errors", run, "--code", "no_address", "-f", "xlsx", "--out", "failed.xlsx").out.startswith(
        "4 failed item(s)"
    )
    book = openpyxl.load_workbook(shop / "failed.xlsx")
    sheet = list(book["Errors"].iter_rows(values_only=True))
    assert sheet[0][:4] == ("key", "stage", "code", "message")
    assert [row[0] for row in sheet[1:]] == ["1", "26", "51", "76"]
    assert book["Errors"]["D2"].data_type == "s"
    assert len(cli("runs", "errors", run, "-o", "json").json) == 9


def _reports(cli: Cli, run: str, shop: Path) -> None:
    written = cli("runs", "report", run, "--out", "run.html", "--zone", "Asia/Almaty")
    assert "hr.transfer transfer-1 is completed with errors: 100 items; apply 100 done; notify 96 done, 4 failed" in written.out
    page = (shop / "run.html").read_text()
    assert page.count("<svg") == 2
    assert not re.search(r"<script|https?://|url\(", page)
    assert "prefers-color-scheme: dark" in page
    assert cli("runs", "report", run, "-f", "xlsx", "--out", "run.xlsx").code == 0
    book = openpyxl.load_workbook(shop / "run.xlsx")
    assert book.sheetnames == ["Summary", "Errors", "Items"]
    assert book["Items"].max_row == 101
    rows = list(csv.DictReader(io.StringIO(cli("runs", "report", run, "-f", "csv").out.removeprefix("\ufeff"))))
    assert [(row["key"], row["apply"], row["notify"], row["code"]) for row in rows[:2]] == [
        ("1", "done", "failed", "no_address"),
        ("2", "done", "done", ""),
    ]
    data = cli("runs", "report", run, "-f", "json").json
    assert sum(data["pace"]["ended"]["notify"]) == 100
    assert sum(data["pace"]["failed"]) == 4
    assert not [path.name for path in shop.iterdir() if path.name.endswith(".part")]


def test_a_canary_waits_for_a_person(app: App, cli: Cli, shop: Path) -> None:
    with working(app, shop):
        given = ("--file", "people.csv", "--params", PARAMS, "--only", "department=Finance", "--wait")
        said = cli("runs", "start", "hr.transfer", "--app", "shop:app", *given)
        run = said.out.split()[0]
        assert said.code == 12
        assert f"`jobwell runs continue {run}`" in said.err
        card = cli("runs", "show", run, "-o", "json").json
        assert (card["status"], card["stages"][0]["done"] + card["stages"][0]["failed"], card["canary"]) == ("paused", 10, True)
        resumed = cli("runs", "resume", run)
        assert resumed.code == 4
        assert "jobwell runs continue" in resumed.err
        assert cli("runs", "continue", run, "--why", "right").code == 0
        assert cli("runs", "continue", run).code == 4
        assert cli("runs", "watch", run).code == 10
        assert cli("runs", "pause", run).code == 4
        assert cli("runs", "cancel", run, "--yes").code == 4


def test_pause_resume_cancel(cli: Cli, conn: Conn, app: App, shop: Path) -> None:
    run = start(cli)
    assert "nothing further begins" in cli("runs", "pause", run, "--why", "a question", "--by", "olga").out
    assert "was paused already" in cli("runs", "pause", run).out
    assert "olga: a question" in cli("runs", "show", run).out
    assert cli("runs", "resume", run, "-o", "json").json == {"run": run, "changed": True, "status": "running"}
    refused = cli("runs", "cancel", run)
    assert refused.code == 2
    assert "100 open item(s)" in refused.err
    assert cli("runs", "cancel", run, "--yes", "--why", "the wrong list").code == 0
    assert "was cancelled already" in cli("runs", "cancel", run, "--yes").out
    assert cli("runs", "watch", run).code == 11
    actions = conn.execute(f"select action from {app.settings.schema}.audit order by id").fetchall()
    assert [row[0] for row in actions] == ["runs.start", "runs.pause", "runs.resume", "runs.cancel"]
    assert cli("runs", "list", "--status", "cancelled", "-o", "csv").out.count("\r\n") == 2


def test_a_dry_run_and_rows_that_do_not_fit(cli: Cli, conn: Conn, app: App, shop: Path) -> None:
    people(shop, 10, "flawed.csv", bad=2)
    given = ("runs", "start", "hr.transfer", "--app", "shop:app", "--params", PARAMS, "--file")
    dry = cli(*given, "people.csv", "--dry-run")
    assert dry.out == "100 items would be taken; jobs: apply 10, notify 100. Nothing was stored.\n"
    flawed = cli(*given, "flawed.csv", "--dry-run", "-o", "json")
    assert (flawed.code, flawed.json["bad"], flawed.json["bad_rows"][0]["row"]) == (1, 2, 12)
    assert cli(*given, "flawed.csv", "--dry-run", "--on-bad", "go-on").code == 0
    assert conn.execute(f"select count(*) from {app.settings.schema}.runs").fetchone() == (0,)
    stopped = cli(*given, "flawed.csv")
    assert stopped.code == 1
    assert "2 rows do not fit" in stopped.err
    assert "row 12: number:" in stopped.err
    gone_on = cli(*given, "flawed.csv", "--on-bad", "go-on")
    assert gone_on.code == 0
    assert "row 12: number:" in cli("runs", "show", gone_on.out.strip()).out
    sheet = openpyxl.Workbook()
    sheet.active.append(["number", "name", "department"])
    sheet.active.append([1, "Ann", "Sales"])
    sheet.save(shop / "people.xlsx")
    assert "1 item would be taken" in cli(*given, "people.xlsx", "--dry-run").out
    assert "1 item would be taken" in cli("runs", "start", "hr.found", "--app", "shop:app", "--dry-run").out


def test_wrong_use_is_one_sentence(cli: Cli, shop: Path) -> None:
    (shop / "old.csv").write_bytes("number,name\n1,Алия".encode("cp1251"))
    given = ("runs", "start", "hr.transfer", "--app", "shop:app", "--params", PARAMS)
    for more, code, sentence in (
        ((), 2, "no preparation that finds the items"),
        (("--file", "people.csv", "--only", "colour=red"), 2, "no field 'colour'; there are number, name"),
        (("--file", "people.csv", "--canary", "100%"), 2, "write 100, or 5%"),
        (("--file", "people.csv", "--canary", "5%", "--only", "number=1"), 1, "give one of them"),
        (("--file", "old.csv"), 1, "it is not utf-8-sig; say --encoding cp1251"),
        (("--file", "shop.py"), 2, "give a .csv or an .xlsx file"),
    ):
        said = cli(*given, *more)
        assert (said.code, sentence in said.err) == (code, True), said.err
    assert "did you mean 'hr.transfer'" in cli("runs", "start", "hr.transfr", "--app", "shop:app").err
    assert cli(*given[:-1], "{}", "--file", "people.csv").code == 1
    for verb in ("show", "watch", "errors", "pause", "resume", "continue", "report"):
        assert cli("runs", verb, "abcdef12").code == 3
    run = start(cli)
    assert cli("runs", "retry", run).code == 2
    assert cli("runs", "retry", run, "--failed", "all", "--stage", "apply").code == 2
    assert cli("runs", "retry", run, "--stage", "mail", "--yes").code == 3
    assert cli("runs", "retry", run, "--item", "4711", "--yes").code == 3
    assert cli("runs", "show", run, "--item", "4711").code == 3
    assert "did you mean 'hr.transfer'" in cli("runs", "list", "--operation", "hr.transfr").err


@pytest.mark.parametrize("key", [None, "big"])
def test_a_start_that_is_stopped_leaves_nothing_that_waits_for_ever(
    key: str | None, app: App, conn: Conn, cli: Cli, shop: Path
) -> None:
    """Without a key the run is cancelled; with one it is open, and the same start goes on with it."""
    os.mkfifo(shop / "slow.csv")
    command = [sys.executable, "-m", "jobwell", "runs", "start", "hr.transfer", "--app", "shop:app", "--params", PARAMS]
    command += ["--file", "slow.csv", *(["--key", key] if key else [])]
    started = subprocess.Popen(command, cwd=shop, env=environ(app), stderr=subprocess.DEVNULL)
    with (shop / "slow.csv").open("w") as file:
        file.write("number,name,department\n")
        file.flush()
        read = f"select sealed, state from {app.settings.schema}.runs"
        until(lambda: conn.execute(read).fetchone() == (False, "queued"), what="the run is made")
        started.send_signal(signal.SIGTERM)
        assert started.wait(20) == 130
    assert conn.execute(read).fetchone() == (False, "queued" if key else "cancelled")
    if key:
        assert start(cli, "--key", key)
        assert conn.execute(f"select sealed, items from {app.settings.schema}.runs").fetchall() == [(True, 100)]


def test_the_card_on_a_terminal_is_drawn_until_the_end(app: App, cli: Cli, shop: Path) -> None:
    run = start(cli)
    screen, end = pty.openpty()
    command = [sys.executable, "-m", "jobwell", "runs", "watch", run]
    watching = subprocess.Popen(command, cwd=shop, env=environ(app) | {"TERM": "xterm"}, stdout=end, stderr=end, stdin=end)
    os.close(end)
    seen = b""
    with working(app, shop), open(screen, "rb", buffering=0) as terminal:  # noqa: PTH123  a file descriptor
        while True:
            try:
                seen += terminal.read(65536)
            except OSError:  # the other side has ended
                break
        assert watching.wait(20) == 10
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert "completed with errors  100.0%  100 items  9 failed" in text
    assert text.count("hr.transfer") > 1
    assert "finish recalculate: done" in text


def test_completion_knows_the_commands(bare: Cli) -> None:
    said = bare(_JOBWELL_COMPLETE="bash_complete", COMP_WORDS="jobwell runs ", COMP_CWORD="2")
    assert {"start", "watch", "retry", "continue"} <= {line.removeprefix("plain,") for line in said.out.split()}
    assert "--canary" in bare("runs", "start", "--help").out

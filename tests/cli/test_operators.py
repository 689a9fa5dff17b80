"""Operators' other commands: why, workers, status with pauses, completion, move."""

import asyncio
import os
import shutil
import subprocess
import sys
from typing import Any

import psycopg
import pytest

from jobwell import App
from jobwell.core.ids import new_id
from jobwell.worker.worker import Worker
from tests.cli.conftest import Cli
from tests.waiting import apause, auntil

Conn = psycopg.Connection[tuple[Any, ...]]


def test_why_in_every_form(app: App, conn: Conn, cli: Cli) -> None:
    @app.task(name="note")
    async def note(n: int) -> None: ...

    job = note.enqueue(1)
    said = cli("jobs", "why", str(job.id))
    assert "No worker lives" in said.out
    found = cli("jobs", "why", str(job.id)[:20], "-o", "json").json
    assert (found["id"], [row["code"] for row in found["because"]]) == (str(job.id), ["no_worker"])
    assert cli("jobs", "why", str(job.id), "-o", "csv").out.startswith("code,sentence\n")
    assert cli("jobs", "why", str(new_id())).code == 3


def test_workers_and_what_they_run(app: App, conn: Conn, cli: Cli) -> None:
    door = asyncio.Event()

    @app.task(name="wait")
    async def wait(n: int) -> None:
        await door.wait()

    async def live() -> None:
        worker = Worker(app, slots=3)
        running = asyncio.create_task(worker.run())
        await worker.ready()
        jobs = [str((await wait.aenqueue(n)).id) for n in range(2)]
        await auntil(lambda: worker.busy == 2)
        call = asyncio.to_thread
        (row,) = (await call(cli, "workers", "list", "-o", "json")).json
        assert (row["id"], row["state"], row["slots"], row["tasks"], row["wakeups"]) == (
            str(worker.id),
            "live",
            3,
            ["wait"],
            row["wakeups"],
        )
        for typed in (str(worker.id), str(worker.id)[:13], row["name"]):
            found = (await call(cli, "workers", "show", typed, "-o", "json")).json
            assert sorted(job["id"] for job in found["runs"]) == sorted(jobs)
            assert all(job["seconds"] >= 0 for job in found["runs"])
        assert jobs[0] in (await call(cli, "workers", "show", row["name"])).out
        assert (await call(cli, "jobs", "why", jobs[0], "-o", "json")).json["because"][0]["code"] == "running"
        assert (await call(cli, "workers", "show", "zz")).code == 3
        assert (await call(cli, "move", "--to", app.settings.url)).code == 4
        door.set()
        worker.stop()
        assert await running == 0
        await apause(0)

    asyncio.run(asyncio.wait_for(live(), 60))
    assert "No worker lives" in cli("workers", "list").out
    assert app.client.database.run is not None


def test_status_says_what_is_paused(app: App, conn: Conn, cli: Cli) -> None:
    schema = app.settings.schema
    put = f"insert into {schema}.queues (name, paused_by, paused_why, paused_until) values (%s, 'olga', %s, now() + %s::interval)"
    conn.execute(put, ["bulk", "month end", "1 hour"])
    conn.execute(put, ["hidden", None, None])
    conn.execute(put, ["over", None, "-1 hour"])
    said = cli("status")
    assert "by olga since" in said.out
    assert "month end" in said.out
    assert "hidden" in said.out
    assert "over" not in said.out.split()
    assert [row["queue"] for row in cli("status", "-o", "json").json["paused"]] == ["bulk", "hidden"]
    rows = {line.split(",")[0]: line for line in cli("status", "-o", "csv").out.splitlines()}
    assert "olga,month end" in rows["bulk"]
    assert rows["hidden"].startswith("hidden,0,")
    assert "olga" not in rows["default"]
    conn.execute(put, ["*", "all stop", None])
    assert "All queues are paused by olga" in cli("status").out
    assert "all stop" in {line.split(",")[0]: line for line in cli("status", "-o", "csv").out.splitlines()}["default"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_of_each_shell(bare: Cli, shell: str) -> None:
    said = bare("completion", shell)
    assert said.code == 0
    assert "_JOBWELL_COMPLETE" in said.out
    if shell == "bash" and shutil.which("bash"):
        subprocess.run(["bash", "-n"], input=said.out, text=True, check=True)
    assert bare("completion", "cmd").code == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("jobwell wor", {"worker", "workers"}), ("jobwell jobs ", {"enqueue", "list", "show", "why"}), ("jobwell store p", {"prune"}),
        ("jobwell jobs list --state re", {"ready", "retrying"}), ("jobwell jobs list --fin", {"--fingerprint"}),
        ("jobwell jobs list -o ", {"table", "json", "csv"}), ("jobwell completion z", {"zsh"}), ("jobwell nothing ", set()),
    ],
)  # fmt: skip
def test_words_are_completed(words: str, expected: set[str]) -> None:
    typed = words.split(" ")
    environ = os.environ | {"_JOBWELL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(typed) - 1)}
    done = subprocess.run([sys.executable, "-m", "jobwell"], env=environ, capture_output=True, text=True, timeout=30, check=False)
    found = {line.partition(",")[2] for line in done.stdout.splitlines()}
    assert found >= expected
    assert done.stderr == ""
    if expected and not words.endswith(" "):
        assert found == expected


def test_every_command_has_a_manual(bare: Cli) -> None:
    for command in (
        ("jobs", "list"), ("jobs", "show"), ("jobs", "enqueue"), ("jobs", "why"), ("workers", "list"), ("workers", "show"), ("store", "size"),
        ("store", "prune"), ("move",), ("completion",), ("status",), ("quarantine", "list"), ("quarantine", "retry"), ("migrate",), ("doctor",),
        ("worker",), ("up",), ("jobs", "cancel"), ("jobs", "retry"), ("queues", "list"), ("queues", "pause"), ("queues", "resume"),
        ("actions", "list"), ("actions", "resume"), ("actions", "stop"), ("workers", "drain"), ("workers", "stop"),
    ):  # fmt: skip
        said = bare(*command, "--help")
        assert said.code == 0
        assert "\\b" not in said.out
        lines = said.out.splitlines()
        at = lines.index("  Examples:") if "  Examples:" in lines else lines.index("  Once for this shell:")
        assert "jobwell " in lines[at + 1], f"{command} shows no example"

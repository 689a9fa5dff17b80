"""The whole demo through the command line, with real processes, a real mail server and a real database."""

import json
import os
import re
import signal
import subprocess
import sys

import psutil
import psycopg
import pytest

KEYS = [
    "employees", "updated", "mailed", "failed", "retried", "left", "quarantined", "repeated", "duplicates", "lost", "seconds", "balanced",
]  # fmt: skip


def _schema(name: str) -> str:
    return f"jwtest_{os.getpid()}_{name}"


def _demo(database_url: str, name: str, *arguments: str) -> "subprocess.Popen[str]":
    environ = {**os.environ, "JOBWELL_DATABASE_URL": database_url, "JOBWELL_SCHEMA": _schema(name)}
    command = [sys.executable, "-m", "jobwell", "demo", *arguments]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _left(database_url: str, name: str) -> list[str]:
    with psycopg.connect(database_url) as conn:
        rows = conn.execute("select nspname from pg_namespace where nspname like %s", [f"{_schema(name)}_demo%"]).fetchall()
    return [row[0] for row in rows]


@pytest.mark.parametrize("extra", [(), ("--kill",)], ids=["undisturbed", "killed"])
def test_the_books_balance(database_url: str, extra: tuple[str, ...]) -> None:
    process = _demo(database_url, "whole", "--people", "300", "-o", "json", *extra)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    books = json.loads(out)
    assert set(books) == {*KEYS, "urgent_worst_wait_ms"}
    assert books["balanced"] is True
    assert (books["employees"], books["updated"], books["mailed"]) == (300, 300, 300)
    assert (books["failed"], books["retried"], books["left"], books["quarantined"]) == (3, 3, 0, 0)
    assert (books["lost"], books["duplicates"]) == (0, 0)
    assert _left(database_url, "whole") == []


def test_as_many_items_as_somebody_is_curious_about(database_url: str) -> None:
    process = _demo(database_url, "many", "--items", "5010", "-o", "json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    counted = json.loads(out)
    assert counted.pop("seconds") > 0
    assert counted == {
        "items": 5010, "done": 5010, "failed": 6, "retried": 6, "left": 0, "exact": True, "balanced": True,
    }  # fmt: skip
    assert _left(database_url, "many") == []


def test_without_a_terminal_it_prints_plain_lines_and_the_books(database_url: str) -> None:
    process = _demo(database_url, "plain", "--people", "200", "--processes", "1")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert "apply 200/200" in out
    assert "Balanced" in out
    words = " ".join(out.split())
    assert re.search(r"is completed with errors: (\d) invalid_address in notify; \1 addresses are corrected", words)
    assert re.search(
        r"hr.transfer transfer-2026-01-28 is completed with errors: 200 items; apply 200 done; notify 19\d done", words
    )
    assert "\x1b" not in out


def test_an_interruption_leaves_nothing_behind(database_url: str) -> None:
    process = _demo(database_url, "broken", "--people", "8000", "--processes", "1")
    assert process.stdout is not None
    while "mailed" not in (line := process.stdout.readline()):
        assert line, process.communicate()
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 2
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    assert psutil.wait_procs(family, timeout=10)[1] == []
    assert _left(database_url, "broken") == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--people", "0"), "--people"),
        (("--people", "5", "--kill"), "at least"),
        (("--items", "5", "--kill"), "not with --items"),
        (("-o", "xml"), "xml"),
    ],
)
def test_a_bad_argument_is_one_sentence(database_url: str, arguments: tuple[str, ...], words: str) -> None:
    out, err = _demo(database_url, "bad", *arguments).communicate(timeout=30)
    assert out == ""
    assert words in err
    assert "Traceback" not in err

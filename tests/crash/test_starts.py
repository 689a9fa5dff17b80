"""Signals that come at an awkward moment of a start."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.crash.conftest import SIGTERM, Fleet
from tests.waiting import pause, until


def launch(fleet: Fleet, processes: int = 1) -> "subprocess.Popen[bytes]":
    """A supervisor, without waiting for its workers."""
    command = [
        sys.executable, "-m", "jobwell", "worker", "tests.crash.app_under_test:app", "--processes", str(processes), "--log", "text",
        "--database-url", fleet.url, "--schema", fleet.schema,
    ]  # fmt: skip
    with fleet.log.open("ab") as log:
        supervisor = subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    fleet.started.append(supervisor)
    return supervisor


@pytest.mark.parametrize("moment", [0.0, 0.1, 0.3, 0.6, 1.0])
def test_a_stop_while_the_children_start_is_a_clean_stop(fleet: Fleet, moment: float) -> None:
    """Counted from the birth of the first child: it imports, checks the tables, registers."""
    supervisor = launch(fleet, processes=2)
    until(lambda: supervisor.poll() is not None or len(psutil.Process(supervisor.pid).children()) == 2)
    children = psutil.Process(supervisor.pid).children()
    pause(moment)
    began = time.monotonic()
    supervisor.send_signal(SIGTERM)
    assert supervisor.wait(30) == 0, fleet.log.read_text()
    assert time.monotonic() - began < 10
    assert not any(child.is_running() for child in children)
    assert "Traceback" not in fleet.log.read_text()
    assert fleet.one("select count(*) from workers where state = 'live'") == 0

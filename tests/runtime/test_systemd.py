"""What systemd is told, and what the first process of a container buries."""

import ctypes
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jobwell.runtime.systemd import Systemd
from jobwell.worker.supervisor import reap
from tests.waiting import until


def test_it_speaks_to_the_socket_and_hides_it_from_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "notify"))
        server.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "60000000")
        systemd = Systemd()
        assert "NOTIFY_SOCKET" not in os.environ
        systemd.tell("READY=1")
        assert server.recv(100) == b"READY=1"
        for _ in range(3):
            systemd.alive()
        assert server.recv(100) == b"WATCHDOG=1"
        server.settimeout(0.05)
        with pytest.raises(TimeoutError):
            server.recv(100)


def test_it_is_silent_where_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    Systemd().tell("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    Systemd().tell("READY=1")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans to another process than the first")
def test_orphans_are_buried_and_our_own_left_alone() -> None:
    child_subreaper = 36
    ctypes.CDLL(None).prctl(child_subreaper, 1)
    try:
        ours = subprocess.Popen([sys.executable, "-c", ""])
        middle = subprocess.run(
            [sys.executable, "-c", "import subprocess, sys; subprocess.Popen([sys.executable, '-c', ''])"], check=True
        )
        assert middle.returncode == 0
        until(lambda: reap({ours.pid}) == 1)
        assert ours.wait(10) == 0  # its code was not taken away
    finally:
        ctypes.CDLL(None).prctl(child_subreaper, 0)

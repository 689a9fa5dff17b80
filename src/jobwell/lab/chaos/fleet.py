"""Supervisors and their workers: started, found, signalled, and never left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from jobwell.core.errors import JobwellError
from jobwell.lab.chaos.marks import URL_VARIABLE
from jobwell.lab.chaos.plan import LEASE
from jobwell.worker.supervisor import EXIT_CONFIG

PROCESSES = 2
SLOTS = 25
RUN_VARIABLE = "JOBWELL_CHAOS_RUN"  # in the environment of everything that a run starts: so it is found again


class Fleet:
    """The processes of a run.

    Args:
        urls: the database's for each supervisor, through a proxy of its own.
        marks_url: past the proxies.
        folder: for logs.
    """

    def __init__(self, urls: Sequence[str], marks_url: str, folder: Path) -> None:
        self._urls = urls
        self._marks_url = marks_url
        self._folder = folder
        self._guard = threading.Lock()
        self._supervisors: list[subprocess.Popen[bytes] | None] = [None for _ in urls]
        self.ending = False

    @property
    def size(self) -> int:
        """How many supervisors there are."""
        return len(self._supervisors)

    def tend(self) -> None:
        """Start the supervisors that do not run.

        Raises:
            JobwellError: one cannot start for a reason that no restart mends.
        """
        with self._guard:
            for number, process in enumerate(self._supervisors):
                if process is not None and process.poll() == EXIT_CONFIG:
                    said = (self._folder / f"supervisor-{number}.log").read_text(encoding="utf-8").splitlines()[-3:]
                    raise JobwellError("workers cannot start: " + " ".join(said))
                if not self.ending and (process is None or process.poll() is not None):
                    self._supervisors[number] = self._start(number)

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBWELL_")}
        environ = {**clean, **self._settings(number)} | {URL_VARIABLE: self._marks_url, RUN_VARIABLE: str(self._folder)}
        command = [sys.executable, "-m", "jobwell", "worker", "jobwell.lab.chaos.tasks:app", "--log", "text"]
        with (self._folder / f"supervisor-{number}.log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603  this Python, and arguments of ours
                command, env=environ, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )  # fmt: skip

    def _settings(self, number: int) -> Mapping[str, str]:
        given = {"database_url": self._urls[number], "lease": f"{LEASE}s", "grace": "2s", "processes": PROCESSES, "slots": SLOTS}
        return {f"JOBWELL_{name.upper()}": str(value) for name, value in given.items()}

    def supervisor(self, target: int) -> psutil.Process | None:
        """One of those that run."""
        running = [each.pid for each in self._supervisors if each is not None and each.poll() is None]
        return _process(running[target % len(running)]) if running else None

    def worker(self, target: int, *, supervisor: int | None = None) -> psutil.Process | None:
        """A worker of one of them, or of this one."""
        found = []
        for each in self._supervisors if supervisor is None else [self._supervisors[supervisor]]:
            if each is not None and each.poll() is None:
                with contextlib.suppress(psutil.Error):
                    found += psutil.Process(each.pid).children()
        return found[target % len(found)] if found else None

    def child(self, target: int) -> psutil.Process | None:
        """A child that runs jobs for a worker: its parent is the worker's fork server."""
        for offset in range(len(self._supervisors) * PROCESSES):
            worker = self.worker(target + offset)
            with contextlib.suppress(psutil.Error):
                family = worker.children(recursive=True) if worker is not None else []
                found = [each for each in family if each.ppid() != worker.pid] if worker is not None else []
                if found:
                    return found[target % len(found)]
        return None

    def end(self, patience: float) -> None:
        """Let them drain, and kill what is left."""
        with self._guard:
            self.ending = True
            running = [each for each in self._supervisors if each is not None and each.poll() is None]
            for each in running:
                each.terminate()
            for each in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    each.wait(patience)
            self.kill()
            for process in self._supervisors:
                if process is not None:
                    process.wait(10)

    def kill(self) -> None:
        """Kill everything that this run has started, orphans included."""
        mine = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and process.environ().get(RUN_VARIABLE) == str(self._folder):
                    process.send_signal(signal.SIGKILL)
                    mine.append(process)
        psutil.wait_procs(mine, timeout=10)


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None

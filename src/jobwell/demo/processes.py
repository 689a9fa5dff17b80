"""The demo's other processes: real ones, as in production, each with a log file."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from jobwell.core.errors import JobwellError
from jobwell.demo.office import SMTP_VARIABLE
from jobwell.settings import Settings

QUEUES = "critical,notifications,default,bulk,reports"
PATIENCE = 30.0  # seconds for a process to come up


class DemoError(JobwellError):
    """The demo cannot go on. What it had made is removed."""


class Child:
    """A process in a session of its own, so that Ctrl-C reaches only us and we stop it in order.

    Args:
        name: for people.
        arguments: for this Python.
        log: the file for its output.
        environ: its environment.
    """

    def __init__(self, name: str, arguments: Sequence[str], log: Path, environ: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603  this Python, and arguments of ours
                [sys.executable, *arguments], env=dict(environ), stdin=subprocess.PIPE, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Of the process that was started; it may have children."""
        return self._process.pid

    def check(self) -> None:
        """Make sure that it runs.

        Raises:
            DemoError: it has ended, with what it said last.
        """
        code = self._process.poll()
        if code is not None:
            raise DemoError(f"{self.name} ended by itself with exit code {code}; it said last:\n{self.tail()}")

    def descendants(self) -> list[psutil.Process]:
        """The processes below it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            found: list[psutil.Process] = psutil.Process(self.pid).children(recursive=True)
            return found
        return []

    def stop(self, grace: float) -> int | None:
        """End it and all below it: SIGTERM, and SIGKILL for what is left after the grace.

        Returns:
            Its exit code, or None where it had to be killed.
        """
        family = self.descendants()
        code = None
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(grace)
        for left in (*family, *self.descendants()):
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        if code is None:
            self._process.kill()
            self._process.wait()
        return code

    def tail(self, lines: int = 5) -> str:
        """The last lines of its log."""
        text = self.log.read_text(encoding="utf-8", errors="replace").strip()
        return "\n".join(text.splitlines()[-lines:]) or "(nothing)"


@contextlib.contextmanager
def sink(folder: Path) -> Iterator[str]:
    """A running mail sink. Gives its address; its journal is in `folder/mailbox`."""
    port = folder / "sink.port"
    arguments = ["-m", "jobwell.demo.sink", "--port-file", str(port), "--mailbox", str(folder / "mailbox"), "--with-parent"]
    child = Child("the mail sink", arguments, folder / "sink.log", os.environ)
    try:
        until = time.monotonic() + PATIENCE
        while not port.exists():
            child.check()
            if time.monotonic() > until:
                raise DemoError(f"the mail sink did not come up within {PATIENCE:.0f} seconds")
            time.sleep(0.01)
        yield f"127.0.0.1:{port.read_text(encoding='ascii')}"
    finally:
        child.stop(5)


def workers(settings: Settings, processes: int, smtp: str, folder: Path) -> Child:
    """Start `jobwell worker` for the demo's tasks."""
    chosen = {
        "JOBWELL_DATABASE_URL": settings.database_url,
        "JOBWELL_DIRECT_URL": settings.direct_url,
        "JOBWELL_SCHEMA": settings.schema,
        "JOBWELL_QUEUES": QUEUES,
    }
    given = {name: value for name, value in os.environ.items() if name.removesuffix("_FILE") not in chosen}
    arguments = ["-m", "jobwell", "worker", "jobwell.demo.tasks:app", "--processes", str(processes)]
    return Child("the worker", arguments, folder / "worker.log", {**given, **chosen, SMTP_VARIABLE: smtp})

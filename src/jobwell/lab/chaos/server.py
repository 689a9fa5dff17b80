"""A private PostgreSQL that is restarted at will."""

import contextlib
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from jobwell import embedded
from jobwell.core.errors import JobwellError

PATIENCE = 60.0


class Server:
    """The run's own server; nothing else is on it.

    Args:
        folder: for its files, where the account that runs it can enter.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._guard = threading.Lock()
        self._stopped = False
        self.url = embedded.start(folder).url
        self._parts = conninfo_to_dict(self.url)

    @property
    def socket(self) -> str:
        """The path of its socket."""
        return f"{self._parts['host']}/.s.PGSQL.{self._parts['port']}"

    def through(self, port: int) -> str:
        """Its URL through a proxy."""
        user, password, name = (self._parts[part] for part in ("user", "password", "dbname"))
        return f"postgresql://{user}:{password}@127.0.0.1:{port}/{name}?sslmode=disable&gssencmode=disable"

    def connect(self) -> "psycopg.Connection[Any]":
        """Straight to it, autocommit."""
        return psycopg.connect(make_conninfo(self.url, application_name="chaos harness", connect_timeout=5), autocommit=True)

    def restart(self, *, immediate: bool, down: float) -> None:
        """Stop it (fast: open transactions are rolled back; immediate: as in a power cut) and start it again."""
        with self._guard:
            if self._stopped:
                return
            pid = int((self.folder / "data" / "postmaster.pid").read_text(encoding="ascii").split()[0])
            os.kill(pid, signal.SIGQUIT if immediate else signal.SIGINT)
            until = time.monotonic() + PATIENCE
            while embedded.is_running(self.folder):
                if time.monotonic() > until:
                    raise JobwellError("the server did not stop")
                time.sleep(0.02)
            time.sleep(down)
            embedded.start(self.folder)

    def stop(self) -> None:
        """End it, and delete its data; its log stays."""
        with self._guard:
            self._stopped = True
            with contextlib.suppress(JobwellError):
                embedded.stop(self.folder)
            for _ in range(1000):
                if not [each for each in self.folder.glob(f"user-{os.getpid()}-*") if each.exists()]:
                    break
                embedded.release(self.folder)
            shutil.rmtree(self.folder / "data", ignore_errors=True)

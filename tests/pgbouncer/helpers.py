"""A PgBouncer in transaction mode, with few connections, in front of the test's server."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.waiting import until

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
POOL = 4  # connections to the server: fewer than there are clients, so that they change hands all the time


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Bouncer:
    """A process of one's own; the account of the server's socket runs it, since it refuses root.

    Args:
        url: of the server.
        folder: for its file.
        mode: the pool mode.
        size: connections to the server for each database.
    """

    def __init__(self, url: str, folder: Path, *, mode: str = "transaction", size: int = POOL) -> None:
        assert PROGRAM is not None
        given = conninfo_to_dict(url)
        self.port = free_port()
        self.url = f"postgresql://client@127.0.0.1:{self.port}/{quote(str(given['dbname']))}"
        words = {"host": given.get("host", "127.0.0.1"), "port": given.get("port", 5432), "user": given.get("user", "postgres")}
        if given.get("password"):
            words["password"] = given["password"]
        self._file = folder / "pgbouncer.ini"
        self._file.write_text(
            "[databases]\n* = " + " ".join(f"{name}='{value}'" for name, value in words.items()) + "\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\n"
            f"default_pool_size = {size}\nmax_client_conn = 200\nserver_login_retry = 0.2\nquery_wait_timeout = 15\n"
            "log_connections = 0\nlog_disconnections = 0\nstats_period = 3600\n"
        )
        self._log = (folder / "pgbouncer.log").open("ab")
        self._folder = folder
        self._user = _account(str(words["host"]))
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until the server answers through it."""
        user, group = self._user or (None, None)
        if self._user is not None:
            for path in (self._file, self._folder):
                os.chown(path, *self._user)
        with self._file.open("rb") as file:  # by a handle: the account need not be able to enter the folder
            self._process = subprocess.Popen(
                [str(PROGRAM), f"/dev/fd/{file.fileno()}"], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
                pass_fds=(file.fileno(),), cwd="/", user=user, group=group,
                extra_groups=None if self._user is None else [],
            )  # fmt: skip
            until(self._answers, what="PgBouncer answers")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "pgbouncer.log").read_text()
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url, connect_timeout=5):
            return True
        return False

    def stop(self) -> None:
        """Stop it at once; its clients are cut off."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None

    def close(self) -> None:
        """The end of the test."""
        self.stop()
        self._log.close()


def _account(host: str) -> tuple[int, int] | None:
    if os.geteuid() != 0:
        return None
    if host.startswith("/"):
        owner = Path(host).stat()
        if owner.st_uid:
            return owner.st_uid, owner.st_gid
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return found.pw_uid, found.pw_gid
    raise AssertionError("there is no account to run PgBouncer")

"""PostgreSQL servers of a test's own, reached over TCP and by a socket of the file system: a primary, and its standby."""

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import psycopg

from jobwell import embedded
from tests.waiting import until

USER, PASSWORD, NAME = "jobwell", "hosts-secret", "postgres"
SETTINGS = {
    "fsync": "off", "shared_buffers": "64MB", "max_connections": "60", "timezone": "UTC", "max_wal_size": "1GB",
    "wal_receiver_status_interval": "1s", "unix_socket_permissions": "0777",
}  # fmt: skip


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Postgres:
    """One server.

    Args:
        folder: for its files; the account that runs it can enter its parent.
        address, port: where it listens.
        space: the network namespace that it lives in; empty: that of the test.
    """

    def __init__(self, folder: Path, address: str = "127.0.0.1", port: int = 0, space: str = "") -> None:
        folder.mkdir()
        folder.chmod(0o711)
        self.folder, self.address, self.space = folder, address, space
        self.port = port or free_port()
        self._account = embedded._account(folder)
        self._programs = embedded._programs(self._account)[0]
        self._process: subprocess.Popen[bytes] | None = None
        if self._account:
            shutil.chown(folder, *self._account)

    @property
    def data(self) -> Path:
        """The cluster."""
        return self.folder / "data"

    @property
    def url(self) -> str:
        """As clients on the network see it."""
        return url_of([self])

    def make(self) -> None:
        """A fresh cluster."""
        secret = self.folder / "secret"
        secret.write_text(PASSWORD, encoding="ascii")
        secret.chmod(0o644)
        self._run(
            "initdb", "-D", self.data, "--encoding=UTF8", "--no-locale", f"--username={USER}", f"--pwfile={secret}",
            "--auth=scram-sha-256", "--no-sync", *(f"--set={name}={value}" for name, value in SETTINGS.items()),
        )  # fmt: skip
        with (self.data / "pg_hba.conf").open("a", encoding="ascii") as rules:
            rules.write("host all all samenet scram-sha-256\nhost replication all samenet scram-sha-256\n")

    def copy(self, primary: "Postgres") -> None:
        """A standby of a running server."""
        source = f"{primary.own} application_name=standby"
        # By the socket of the file system, which no namespace hides; then it streams over the network.
        self._run("pg_basebackup", "-d", source, "-D", self.data, "-X", "stream", "-c", "fast", "--no-sync")
        (self.data / "standby.signal").touch()
        where = f"host={primary.address} port={primary.port} user={USER} password={PASSWORD} application_name=standby"
        with (self.data / "postgresql.auto.conf").open("a", encoding="ascii") as settings:
            settings.write(f"primary_conninfo = '{where}'\n")
        if self._account:
            for path in (self.data / "standby.signal", self.data / "postgresql.auto.conf"):
                shutil.chown(path, *self._account)

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = embedded._run(self._account, self._programs / program, *arguments)
        assert done.returncode == 0, f"{program}: {done.stdout}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = [
            "-D", str(self.data), "-c", f"listen_addresses={self.address}", "-c", f"port={self.port}",
            "-c", f"unix_socket_directories={self.folder}",
        ]  # fmt: skip
        command = [str(self._programs / "postgres"), *options]
        given: dict[str, Any] = {"cwd": "/", "start_new_session": True, "stdin": subprocess.DEVNULL}
        if self.space:
            ids = ("-S", str(self._account[0]), "-G", str(self._account[1])) if self._account else ()
            command = ["nsenter", f"--net=/run/netns/{self.space}", *ids, "--", *command]
        elif self._account:
            given |= {"user": self._account[0], "group": self._account[1], "extra_groups": []}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **given)
        until(self._answers, what=f"the server answers: {self.folder / 'log'}")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with contextlib.suppress(psycopg.OperationalError), self.connect():
            return True
        return False

    @property
    def own(self) -> str:
        """The way past the network."""
        return f"host={self.folder} port={self.port} user={USER} password={PASSWORD} dbname={NAME}"

    @property
    def own_url(self) -> str:
        """The same as a URL."""
        return f"postgresql://{USER}:{PASSWORD}@/{NAME}?host={quote(str(self.folder), safe='')}&port={self.port}"

    def connect(self) -> "psycopg.Connection[Any]":
        """Past the network, autocommit."""
        return psycopg.connect(self.own, autocommit=True, connect_timeout=5, options="-c search_path=jobwell")

    def one(self, query: str) -> Any:
        """One value."""
        with self.connect() as conn:
            row = conn.execute(query).fetchone()
        return row[0] if row else None

    def set(self, name: str, value: str) -> None:
        """Change a setting of the running server."""
        with self.connect() as conn:
            conn.execute(f"alter system set {name} = '{value}'")
            conn.execute("select pg_reload_conf()")
        until(lambda: self.one(f"show {name}") == value)

    def wait_for_standby(self) -> None:
        """Until a standby streams; from then on every commit waits for it."""
        self.set("synchronous_standby_names", "*")
        until(lambda: self.one("select count(*) from pg_stat_replication where sync_state = 'sync'") == 1)

    def promote(self) -> None:
        """The standby becomes the primary."""
        assert self.one("select pg_promote(true, 30)") is True

    def kill(self) -> None:
        """All its processes, as when the machine goes."""
        if self._process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                family = psutil.Process(self._process.pid).children(recursive=True)
                self._process.kill()  # first: otherwise it would bring the others up again
                for each in family:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        each.kill()
                psutil.wait_procs(family, timeout=20)
            self._process.wait(20)
            self._process = None


def url_of(servers: Sequence[Postgres]) -> str:
    """One URL for all of them."""
    places = ",".join(f"{server.address}:{server.port}" for server in servers)
    return f"postgresql://{USER}:{PASSWORD}@{places}/{NAME}"

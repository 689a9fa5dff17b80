"""URLs with several hosts: what is made of them, and what people are told."""

import json
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from jobwell import App, settings
from jobwell.cli import main
from jobwell.core.errors import StoreRefused, StoreUnavailable
from jobwell.settings import Settings, masked
from jobwell.store.database import Database
from jobwell.store.hosts import Hosts, failures, pairs, timeout
from jobwell.store.wire import Silence, outdated
from jobwell.testing import Schema
from tests.outage.helpers import note_of


def place_of(url: str) -> tuple[str, str]:
    """Host and port of a URL with one."""
    given = conninfo_to_dict(url)
    return str(given.get("host") or "127.0.0.1"), str(given.get("port") or "5432")


def several(url: str, *places: tuple[str, str], database: str = "") -> str:
    """The URL with these hosts instead of its own."""
    given = conninfo_to_dict(url)
    login = quote(str(given["user"])) + (f":{quote(str(given['password']))}" if given.get("password") else "")
    hosts, ports = (quote(",".join(part), safe=",") for part in zip(*places, strict=True))
    return f"postgresql://{login}@/{database or given['dbname']}?host={hosts}&port={ports}"


TWO = "postgresql://me:secret@one:5432,two:5433/jobs"


@pytest.mark.parametrize(
    "url",
    [
        TWO,
        f"{TWO}?target_session_attrs=read-write",
        "postgresql://me:secret@one,two/jobs",
        "postgresql://me@[::1]:5432,[::2]:5433/jobs?password=secret",
        "postgresql:///jobs?host=/a,/b&port=1,2&password=secret",
    ],
)
def test_they_are_taken_and_shown_without_the_password(url: str) -> None:
    found = Settings(database_url=url, direct_url=url)
    assert "secret" not in masked(url)
    assert masked(url).replace("***", "secret") == url, "and otherwise whole"
    assert not any("secret" in row[1] for row in found.described())


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"host": "one,two", "port": "1,2"}, [("one", "1"), ("two", "2")]),
        ({"host": "one,two", "port": "5"}, [("one", "5"), ("two", "5")]),
        ({"host": "one,two"}, [("one", ""), ("two", "")]),
        ({"hostaddr": "10.0.0.1,10.0.0.2"}, [("10.0.0.1", ""), ("10.0.0.2", "")]),
        ({"host": "one"}, [("one", "")]),
        ({}, [("", "")]),
    ],
)
def test_their_hosts_are_known(given: dict[str, str], wanted: list[tuple[str, str]]) -> None:
    assert pairs(given) == wanted


@pytest.mark.parametrize(
    ("given", "limit", "wanted"),
    [
        ({"host": "one"}, 0.0, 10),
        ({"host": "one,two"}, 0.0, 5),
        ({"host": "one,two"}, 3.0, 2),  # the driver's least
        ({"host": "one"}, 3.4, 3),
        ({"host": "one"}, 60.0, 10),
        ({"host": "one,two", "connect_timeout": "3"}, 0.0, 3),  # the URL's is for each host
        ({"host": "one", "connect_timeout": "60"}, 0.0, 60),
        ({"host": "one", "connect_timeout": "60"}, 4.0, 4),  # who has a lease to keep cannot wait for that
        ({"host": "one,two", "connect_timeout": "60"}, 8.0, 4),
        ({"host": "one", "connect_timeout": "0"}, 0.0, 10),
        ({"host": "one", "connect_timeout": "soon"}, 0.0, 10),
    ],
)
def test_the_patience_is_for_all_of_them_together(given: dict[str, str], limit: float, wanted: int) -> None:
    assert timeout(given, 10.0, limit) == wanted


def test_the_one_that_answered_last_is_asked_first() -> None:
    hosts = Hosts()
    three: dict[str, Any] = {"host": "one,two,three", "port": "1,2,3", "user": "me"}
    assert hosts.arranged(three) == three
    hosts.answered(three, "two", 2)
    turned = hosts.arranged(three)
    assert turned == three | {"host": "two,three,one", "port": "2,3,1"}
    hosts.answered(turned, "three", 3)
    assert hosts.arranged(three)["host"] == "three,one,two"
    hosts.answered(turned, "elsewhere", 3)
    assert hosts.arranged(three)["host"] == "three,one,two", "a name that it does not know tells nothing"
    other = {"host": "one,two", "port": "7"}
    assert hosts.arranged(other) == other, "another URL has a memory of its own"
    hosts.answered(other, "two", 7)
    assert hosts.arranged(other) == {"host": "two,one", "port": "7"}
    assert hosts.arranged({"host": "one"}) == {"host": "one"}


def test_one_that_can_be_written_is_wanted_unless_the_url_says_otherwise() -> None:
    def asked(url: str) -> object:
        return Database(settings.load({"database_url": url}, environ={})).parameters("test").get("target_session_attrs")

    assert asked(TWO) == "read-write"
    assert asked(f"{TWO}?target_session_attrs=primary") == "primary"
    assert asked("postgresql://me@one/jobs") is None


def test_each_host_is_named_with_its_own_reason() -> None:
    nobody = "postgresql://me:secret@127.0.0.1:1,127.0.0.1:2/jobs"
    database = Database(settings.load({"database_url": nobody}, environ={}))
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1: .*refused.*; 127\.0\.0\.1:2: .*refused") as told:
        database.connect()
    assert not told.value.unsure
    assert "secret" not in told.value.message


SAID = """session is read-only
Multiple connection attempts failed. All failures were:
- host: 'one', port: '5432', hostaddr: '10.0.0.1': connection failed: connection to server at "10.0.0.1", port 5432 failed: {}
\thint
- host: 'two', port: None, hostaddr: None: connection timeout expired"""


def test_the_drivers_list_is_read() -> None:
    assert failures(SAID.format("Connection refused")) == [
        ("one:5432", "Connection refused"),
        ("two", "connection timeout expired"),
    ]
    assert failures("connection timeout expired") == []


def test_a_refusal_is_final_only_where_each_host_says_so(database_url: str) -> None:
    """While one of them is away it may be that the other one is only not ready: a worker waits."""

    def connect(*places: tuple[str, str]) -> None:
        url = several(database_url, *places, database="no_such_database")
        Database(settings.load({"database_url": url}, environ={})).connect()

    server, nobody = place_of(database_url), ("127.0.0.1", "1")
    with pytest.raises(StoreRefused, match="create it, or correct the URL"):
        connect(server, server)
    with pytest.raises(StoreUnavailable, match=r"refused.*\"no_such_database\" does not exist"):
        connect(nobody, server)
    with pytest.raises(StoreUnavailable, match=r"\"no_such_database\" does not exist.*refused"):
        connect(server, nobody)


def test_doctor_names_the_host_that_it_reached(database_url: str, kit: Schema, capsys: pytest.CaptureFixture[str]) -> None:
    host, port = place_of(database_url)
    url = several(database_url, ("127.0.0.1", "1"), (host, port))
    with pytest.raises(SystemExit):
        main(["doctor", "-o", "json", "--database-url", url, "--schema", kit.name])
    told = json.loads(capsys.readouterr().out)
    assert (told["server"]["host"], told["server"]["pooler"]) == (f"{host}:{port}", "none")
    assert told["server"]["wakeups"] == "notify"


def test_a_caller_may_lend_a_connection_to_any_of_them(database_url: str, schema: str, conn: object) -> None:
    url = several(database_url, ("127.0.0.1", "1"), place_of(database_url))
    app = App(url, schema=schema)
    note = note_of(app)
    with psycopg.connect(url) as mine, app.within(mine):
        job = note.enqueue(1)
    assert job.status() == "ready"
    app.close()


async def test_what_waits_on_a_host_that_was_left_ends(database_url: str, schema: str) -> None:
    """A primary that is gone without a word never answers; it must not be waited for when there is another one."""
    there = place_of(database_url)
    database = Database(
        settings.load({"database_url": several(database_url, ("127.0.0.1", "1"), there), "schema": schema}, environ={})
    )
    plain, other = database.connect(), database.connect()
    alone = await database.aconnect()
    assert plain.way is not None
    assert not outdated(plain)
    assert not outdated(alone)
    assert plain.execute("select pg_sleep(1.2)").rowcount == 1, "without another host a statement has its time"
    plain.way.hosts.answered(database.parameters("test"), "127.0.0.1", 1)
    assert outdated(plain)
    assert outdated(alone)
    assert plain.execute("select 1").rowcount == 1, "what is answered is answered"
    for conn in (plain, other):
        with pytest.raises(Silence, match="another host is the primary now"):
            conn.execute("select pg_sleep(20)")
        assert conn.closed
    with pytest.raises(Silence, match="another host is the primary now"):
        await alone.execute("select pg_sleep(20)")


def test_a_host_that_fell_silent_is_asked_last() -> None:
    hosts = Hosts()
    two = {"host": "one,two"}
    way = hosts.answered(two, "one", 5432)
    assert way is not None
    way.doubt()
    assert hosts.arranged(two)["host"] == "two,one"
    assert not way.left, "nobody else has answered yet"
    hosts.answered(two, "one", 5432)
    assert hosts.arranged(two)["host"] == "one,two"
    assert hosts.answered(two | {"load_balance_hosts": "random"}, "one", 5432) is None, "there all of them are in use"
    assert hosts.answered({"host": "one"}, "one", 5432) is None

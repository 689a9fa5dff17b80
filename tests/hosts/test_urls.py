"""URLs with several hosts: what is made of them, and what people are told."""

from typing import Any

import pytest

from jobwell import settings
from jobwell.core.errors import StoreRefused, StoreUnavailable
from jobwell.settings import Settings, masked
from jobwell.store.database import Database
from jobwell.store.hosts import Hosts, failures, pairs, timeout

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


def test_a_wrong_password_is_final_only_where_each_host_says_so(database_url: str) -> None:
    """While one of them is away it may be that the other one is only not ready: a worker waits."""
    from psycopg.conninfo import conninfo_to_dict

    given = conninfo_to_dict(database_url)
    host, port = given["host"], given.get("port") or "5432"
    if not str(host).startswith("/"):
        pytest.skip("needs the socket of a server that asks for a password")

    def connect(*places: tuple[str, object]) -> None:
        where = ",".join(str(place[0]) for place in places), ",".join(str(place[1]) for place in places)
        url = f"postgresql://jobwell:wrong@/jobwell?host={where[0]}&port={where[1]}"
        Database(settings.load({"database_url": url}, environ={})).connect()

    server, nobody = (str(host), port), ("127.0.0.1", 1)
    with pytest.raises(StoreRefused, match="check user, password"):
        connect(server, server)
    with pytest.raises(StoreUnavailable, match="refused.*authentication failed"):
        connect(nobody, server)
    with pytest.raises(StoreUnavailable, match="authentication failed.*refused"):
        connect(server, nobody)

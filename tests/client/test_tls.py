"""Case C9: connections over TLS are never shared with a child, however it is made; a shared one breaks with the first record."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App
from tests.client.test_processes import FORKS, HEAD
from tests.client.tls import Front
from tests.crash import app_under_test as tasks
from tests.crash.conftest import Fleet
from tests.crash.conftest import fleet as fleet  # noqa: PLC0414  a fixture
from tests.crash.test_poison import put
from tests.waiting import until


@pytest.fixture
def front(database_url: str) -> Iterator[Front]:
    made = Front(database_url)
    yield made
    assert made.broken == []
    made.close()


@pytest.mark.skipif(not hasattr(sys, "getdlopenflags"), reason="there is no fork here")
@pytest.mark.parametrize("name", ["a child while the parent goes on", "an async child of an async parent", "a bulk in both"])
def test_a_fork_is_safe_over_tls(front: Front, schema: str, conn: "Connection[Any]", name: str) -> None:
    script, expected = FORKS[name]
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", f"{HEAD}{script}\napp.close()", front.url, schema],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert conn.execute("select count(*) from jobs").fetchone() == (expected,)
    assert front.served >= 2


POOL = """
import multiprocessing, sys
from jobwell import App

app = App(sys.argv[1], schema=sys.argv[2])

@app.task(name="note")
def note(n: int) -> None: ...

def work(n):
    note.enqueue(n)
    return n

if __name__ == "__main__":
    note.enqueue(-1)
    with multiprocessing.get_context(sys.argv[3]).Pool(3) as pool:
        for n in pool.imap_unordered(work, range(int(sys.argv[4]))):
            if n % 10 == 0:
                note.enqueue(-1)
    app.close()
"""


@pytest.mark.parametrize("way", ["fork", "forkserver", "spawn"])
def test_children_of_multiprocessing_have_connections_of_their_own(
    front: Front, schema: str, conn: "Connection[Any]", tmp_path: Path, way: str
) -> None:
    (tmp_path / "pool.py").write_text(POOL, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(tmp_path / "pool.py"), front.url, schema, way, "100"],
        capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert conn.execute("select count(*), count(distinct args::text) from jobs").fetchone() == (111, 101)


def relays(app: App, fleet: Fleet, front: Front, jobs: int) -> None:
    shop = put(app, fleet)
    fleet.url = front.url
    fleet.start(slots=10, children=3, lease="20s")
    shop.enqueue_many([tasks.relay.job(str(n)) for n in range(jobs)])
    until(lambda: fleet.finished() == 2 * jobs, timeout=30 + jobs)
    shop.close()
    assert fleet.marks("start") == jobs
    assert fleet.one("select count(*) from attempts where outcome <> 'succeeded'") == 0
    assert "Traceback" not in fleet.log.read_text()


def test_process_jobs_use_the_database_over_tls(app: App, fleet: Fleet, front: Front) -> None:
    relays(app, fleet, front, 60)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_process_jobs_use_the_database_over_tls_at_full_length(app: App, fleet: Fleet, front: Front) -> None:
    relays(app, fleet, front, 500)

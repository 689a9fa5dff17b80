"""Processes, threads and loops (cases C9 and L1): no connection is shared, and nobody waits for another."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App
from jobwell.client.task import Task
from tests.client.helpers import count, one
from tests.waiting import until


def test_eight_threads_enqueue_at_once(note: Task[..., None], conn: Connection[Any]) -> None:
    """The first use included, at which the pool is made."""
    start = threading.Barrier(8)

    def enqueue(thread: int) -> list[Any]:
        start.wait()
        return [note.enqueue(thread * 100 + n).id for n in range(25)]

    with ThreadPoolExecutor(8) as pool:
        ids = [id_ for made in pool.map(enqueue, range(8)) for id_ in made]
    assert {row[0] for row in conn.execute("select id from jobs")} == set(ids)
    assert len(ids) == 200


def test_a_hundred_tasks_of_one_loop_enqueue_at_once(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    async def run() -> None:
        await asyncio.gather(*(note.aenqueue(n) for n in range(100)))
        await app.aclose()

    asyncio.run(run())
    assert count(conn) == 100


def test_two_loops_in_two_threads_do_not_share_connections(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    both = threading.Barrier(2)

    async def run(first: int) -> None:
        await note.aenqueue(first)
        await asyncio.to_thread(both.wait)
        await asyncio.gather(*(note.aenqueue(first + n) for n in range(1, 20)))
        await app.aclose()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda first: asyncio.run(run(first)), (0, 100)))
    assert count(conn) == 40


def test_one_loop_after_another(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    async def run(n: int) -> None:
        await note.aenqueue(n)
        await app.aclose()

    for n in range(3):
        asyncio.run(run(n))
        note.enqueue(n)
    assert count(conn) == 6


def test_the_producer_holds_at_most_four_connections(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(note.enqueue, range(200)))
    pids = conn.execute("select count(*) from pg_stat_activity where application_name = 'jobwell client' and query like %s",
                        [f"%{app.settings.schema}.jobs%"]).fetchone()  # fmt: skip
    assert pids is not None
    assert 1 <= pids[0] <= 4


HEAD = """
import asyncio, os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from jobwell import App

app = App(sys.argv[1], schema=sys.argv[2])

@app.task(name="note")
def note(n: int) -> None: ...

def many(first, amount=20):
    for n in range(amount):
        note.enqueue(first + n)

def forked(child):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child()
            code = 0
        finally:
            os._exit(code)
    return pid

def wait(*pids):
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * len(pids)

many(0, 1)
"""

FORKS = {
    "a child while the parent goes on": (
        """
pid = forked(lambda: many(1000))
many(2000)
wait(pid)
many(3000)
""",
        61,
    ),
    "four children, and their children": (
        """
def child(first):
    many(first, 10)
    wait(forked(lambda: many(first + 500, 10)))
    many(first + 100, 10)
pids = [forked(lambda: child(first)) for first in (1000, 2000, 3000, 4000)]
many(5000)
wait(*pids)
many(6000)
""",
        1 + 4 * 30 + 40,
    ),
    "a child whose threads are first at the same time": (
        """
def child():
    start = threading.Barrier(8)
    def run(n):
        start.wait()
        many(n * 1000, 10)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(1, 9)))
for _ in range(10):
    wait(forked(child))
many(9000)
""",
        1 + 10 * 80 + 20,
    ),
    "an async child of an async parent": (
        """
async def amany(first):
    await asyncio.gather(*(note.aenqueue(first + n) for n in range(20)))
    await app.aclose()
asyncio.run(amany(1000))
pid = forked(lambda: asyncio.run(amany(2000)))
asyncio.run(amany(3000))
wait(pid)
""",
        61,
    ),
    "a fork while other threads enqueue": (
        """
stop, first = threading.Event(), threading.Event()
def busy():
    while not stop.is_set():
        note.enqueue(-1)
        first.set()
threads = [threading.Thread(target=busy) for _ in range(4)]
[thread.start() for thread in threads]
first.wait()
wait(*[forked(lambda: many(1000, 5)) for _ in range(10)])
stop.set()
[thread.join() for thread in threads]
""",
        None,
    ),
    "a child that ends as programs do": (
        """
if os.fork() == 0:
    many(1000)
    sys.exit()
many(2000)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
many(3000)
""",
        61,
    ),
    "a bulk in both": (
        """
def bulk():
    assert len(app.enqueue_many(note.job(n) for n in range(1000))) == 1000
pid = forked(bulk)
bulk()
wait(pid)
""",
        2001,
    ),
}


@pytest.mark.skipif(not hasattr(sys, "getdlopenflags"), reason="there is no fork here")
@pytest.mark.parametrize(("script", "expected"), FORKS.values(), ids=FORKS.keys())
def test_a_fork_is_safe(database_url: str, schema: str, conn: Connection[Any], script: str, expected: int | None) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", f"{HEAD}{script}\napp.close()", database_url, schema],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    if expected is None:
        assert count(conn, "jobs where args->>'n' <> '-1'") == 51
    else:
        assert count(conn) == expected


def held(conn: Connection[Any]) -> int:
    """Connections of producers of this schema's database."""
    return int(
        one(
            conn,
            "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'jobwell client'",
        )
    )


@pytest.mark.parametrize("tasks", [1, 10])
def test_many_loops_one_after_another_leave_no_connections(
    app: App, note: Task[..., None], conn: Connection[Any], tasks: int
) -> None:
    """Nobody calls `aclose` after `asyncio.run(task.aenqueue(…))`; ten tasks wait for places, by what holds the loop."""
    before = held(conn)

    async def run() -> None:
        await asyncio.gather(*(note.aenqueue(n) for n in range(tasks)))

    for _ in range(50):
        asyncio.run(run())
    assert count(conn) == 50 * tasks
    until(lambda: held(conn) - before <= 4)
    app.close()
    until(lambda: held(conn) <= before)

"""A fork never falls into the middle of a step of connecting: the child would inherit locks that nobody opens."""

import asyncio
import os
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jobwell.settings import load
from jobwell.store import wire
from jobwell.store.database import Database
from jobwell.store.wire import LoopConnection, PlainConnection

forks = pytest.mark.skipif(not hasattr(sys, "getdlopenflags"), reason="there is no fork here")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was connected step by step."""
    seen: list[str] = []
    apart = wire._connecting.apart

    def watched(gen: Any) -> Any:
        seen.append("connecting")
        return (yield from apart(gen))

    monkeypatch.setattr(wire._connecting, "apart", watched)
    return seen


def test_every_connection_is_made_in_such_steps(database_url: str, schema: str, steps: list[str]) -> None:
    """The hook in the driver is not a public one: should it go, this tells."""
    database = Database(load({"database_url": database_url, "schema": schema}))
    database.connect("test").close()
    assert len(steps) == 1
    pool = database.pool("test", 1)
    with pool.connection() as conn:
        assert isinstance(conn, PlainConnection)
    pool.close()
    assert len(steps) == 2

    async def run() -> None:
        conn = await database.aconnect("test")
        assert isinstance(conn, LoopConnection)
        await conn.close()

    asyncio.run(run())
    assert len(steps) == 3


@forks
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_waits_for_the_step_of_another_thread() -> None:
    inside, leave, at_fork, forked = (threading.Event() for _ in range(4))
    children: list[int] = []

    def step() -> Generator[Any, Any, str]:
        inside.set()
        assert leave.wait(10)
        yield 0, 0
        return "connected"

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            # The child's own step finds the lock open.
            os._exit(0 if wire._connecting._step.acquire(timeout=1) else 1)
        children.append(pid)
        forked.set()

    os.register_at_fork(before=at_fork.set)  # hooks of this kind run last registered first
    connecting = threading.Thread(target=lambda: next(wire._connecting.apart(step())))
    connecting.start()
    assert inside.wait(10)
    forking = threading.Thread(target=fork)
    forking.start()
    assert at_fork.wait(10)
    assert not forked.wait(0.2)
    leave.set()
    assert forked.wait(10)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
    connecting.join()
    forking.join()


def test_between_the_steps_nobody_is_held_up() -> None:
    def step() -> Generator[Any, Any, str]:
        yield 0, 0
        return "connected"

    gen = wire._connecting.apart(step())
    next(gen)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(wire._connecting._step.acquire, timeout=1).result()
        other.submit(wire._connecting._step.release).result()
    with pytest.raises(StopIteration, match="connected"):
        gen.send(1)

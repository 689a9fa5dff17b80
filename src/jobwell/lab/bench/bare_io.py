"""The bare loop that `io` is held against: the same slots and the same nap, and nothing but claim and finish beside them."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from jobwell.core.ids import new_id
from jobwell.lab.bench.place import Bench


def bare_io(bench: Bench, slots: int, nap: float) -> float:
    """Jobs a second that a loop on one connection gets through with so many slots, each job a timer of `nap` seconds.

    What has ended is stored, as many are claimed, and their timers are set; by turns, each statement its own commit.
    """
    return _runner()(_loop(bench, slots, nap))


def _runner() -> "Callable[[Coroutine[Any, Any, float]], float]":
    try:
        import uvloop  # as workers do
    except ImportError:
        return asyncio.run
    return uvloop.run


async def _loop(bench: Bench, slots: int, nap: float) -> float:
    loop, ended, some = asyncio.get_running_loop(), list[UUID](), asyncio.Event()
    claim, free, running, done = new_id(), slots, 0, 0
    conn = await bench.database.aconnect("bench")

    def end(job: UUID) -> None:
        ended.append(job)
        some.set()

    try:
        cursor, began = conn.cursor(binary=True), time.perf_counter()
        while True:
            await cursor.execute(bench.statement["bench.floor_claim"], {"claim": claim, "want": free}, prepare=True)
            rows = await cursor.fetchall()
            for row in rows:
                loop.call_later(nap, end, row[0])
            running += len(rows)
            if not running:
                return done / (time.perf_counter() - began)
            await some.wait()
            some.clear()
            over = ended[:]
            del ended[: len(over)]
            await cursor.execute(bench.statement["bench.floor_finish"], {"ids": over, "claim": claim}, prepare=True)
            running, done, free = running - len(over), done + len(over), free - len(rows) + len(over)
    finally:
        await conn.close()

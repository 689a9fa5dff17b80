"""Slots: as many at once as there are, and nothing waits behind a busy worker."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from jobwell import App
from tests.waiting import PATIENCE, auntil
from tests.worker.live.helpers import BOTH, Books, Kind, Start


class Hall:
    """Where jobs wait until the gate opens.

    Attributes:
        inside: how many are in it now.
        most: how many there have been at once.
        came: how often each was there.
    """

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.guard = threading.Lock()
        self.inside = self.most = 0
        self.came: Counter[int] = Counter()

    def enter(self, n: int) -> None:
        with self.guard:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.came[n] += 1

    def leave(self) -> None:
        with self.guard:
            self.inside -= 1

    def declare(self, app: App, kind: Kind) -> Any:
        if kind == "async":

            @app.task(name="stay")
            async def stay(n: int) -> int:
                self.enter(n)
                await auntil(self.gate.is_set)
                self.leave()
                return n

            return stay

        @app.task(name="stay")
        def stay_plain(n: int) -> int:
            self.enter(n)
            assert self.gate.wait(PATIENCE)
            self.leave()
            return n

        return stay_plain


@pytest.mark.parametrize("kind", BOTH)
async def test_never_more_run_than_there_are_slots_and_another_worker_takes_the_rest_at_once(
    app: App, start: Start, books: Books, kind: Kind
) -> None:
    hall = Hall()
    stay = hall.declare(app, kind)
    first = await start(slots=2)
    await app.aenqueue_many([stay.job(n) for n in range(5)])
    await auntil(lambda: hall.inside == 2)
    assert books.rows("select state, count(*) as n from jobs group by state order by 1") == [
        {"state": "ready", "n": 3}, {"state": "running", "n": 2},
    ]  # fmt: skip
    second = await start(slots=4)
    await auntil(lambda: hall.inside == 5, 5)
    assert (first.worker.busy, second.worker.busy) == (2, 3)
    hall.gate.set()
    await books.empty()
    assert hall.came == Counter(range(5))


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("slots", [1, 2, 7])
async def test_in_a_long_run_the_slots_are_never_exceeded(app: App, start: Start, books: Books, kind: Kind, slots: int) -> None:
    hall = Hall()
    hall.gate.set()
    stay = hall.declare(app, kind)
    await app.aenqueue_many([stay.job(n) for n in range(150)])
    await start(slots=slots)
    await books.empty()
    assert 1 <= hall.most <= slots
    assert hall.came == Counter(range(150))
    assert books.count("finished") == 150


async def test_a_free_slot_is_filled_as_soon_as_a_job_has_ended(app: App, start: Start, books: Books) -> None:
    gates = [threading.Event() for _ in range(4)]
    begun: list[int] = []

    @app.task(name="wait")
    async def wait(n: int) -> None:
        begun.append(n)
        await auntil(gates[n].is_set)

    await app.aenqueue_many([wait.job(n) for n in range(4)])
    await start(slots=2)
    await auntil(lambda: len(begun) == 2)
    gates[begun[0]].set()
    await auntil(lambda: len(begun) == 3)
    await auntil(lambda: books.count("jobs", "state = 'running'") == 2)  # the first is being stored while the third begins
    for gate in gates:
        gate.set()
    await books.empty()


async def test_queues_that_a_worker_does_not_serve_are_left_alone(app: App, start: Start, books: Books) -> None:
    @app.task(name="a", queue="reports")
    async def a() -> str:
        return "a"

    @app.task(name="b", queue="bulk")
    async def b() -> str:
        return "b"

    first, second = await a.aenqueue(), await b.aenqueue()
    await start(queues=["bulk"])
    assert (await books.ended(second))["result"] == "b"
    assert (await books.ended(await b.aenqueue()))["result"] == "b"
    assert books.live(first)["attempt"] == 0  # type: ignore[index]
    await start(queues=["reports"])
    assert (await books.ended(first))["result"] == "a"


@pytest.mark.parametrize("size", [1_900, 2_100, 200_000])
@pytest.mark.parametrize("count", [1, 30])
async def test_arguments_of_every_size_arrive(app: App, start: Start, books: Books, size: int, count: int) -> None:
    @app.task(name="measure")
    async def measure(text: str, n: int) -> list[int]:
        return [len(text), n]

    texts: Callable[[int], str] = lambda n: ("ж" * (size // 2)) + str(n)  # noqa: E731
    ids = list(await app.aenqueue_many([measure.job(texts(n), n) for n in range(count)]))
    assert books.count("payloads") == (count if size > 2048 else 0)
    await start()
    assert [(await books.ended(job))["result"] for job in ids] == [[len(texts(n)), n] for n in range(count)]

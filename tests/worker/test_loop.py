"""`runtime.loop`: start, stop, wake-up and error policy of every service."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jobwell.runtime import loop as loop_module
from jobwell.runtime.loop import FATAL_FAILURES, Loop
from tests.waiting import auntil


class Service:
    """Ticks as it is told, and keeps count."""

    def __init__(self, *answers: float | BaseException | Callable[[], Awaitable[float]], last: float = 3600.0) -> None:
        self.answers = list(answers)
        self.last = last
        self.ticks = 0
        self.fatal: list[BaseException] = []
        self.errors: list[BaseException] = []
        self.loop = Loop(
            "test", self.tick, expected=lambda error: isinstance(error, OSError), on_fatal=self.died, on_error=self.errors.append
        )

    async def tick(self) -> float:
        self.ticks += 1
        answer = self.answers.pop(0) if self.answers else self.last
        if isinstance(answer, BaseException):
            raise answer
        return await answer() if callable(answer) else answer

    def died(self, name: str, error: BaseException) -> None:
        assert name == "test"
        self.fatal.append(error)

    async def seen(self, ticks: int) -> None:
        await auntil(lambda: self.ticks >= ticks, what=f"{ticks} ticks")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backing off takes no time worth speaking of."""
    monkeypatch.setattr(loop_module, "LONGEST_BACKOFF", 0.001)


async def test_it_ticks_until_it_is_stopped() -> None:
    service = Service(last=0.0)
    service.loop.start()
    service.loop.start()
    await service.seen(20)
    await service.loop.stop()
    await service.loop.stop()
    ticks = service.ticks
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert service.ticks == ticks


async def test_stopping_what_never_began_is_nothing() -> None:
    service = Service()
    await service.loop.stop()
    await service.loop.finish(1.0)
    assert service.ticks == 0


async def test_a_wake_up_ends_the_rest() -> None:
    service = Service(last=3600.0)
    service.loop.start()
    for ticks in range(1, 10):
        await service.seen(ticks)
        service.loop.wake()
    await service.loop.stop()


async def test_a_wake_up_during_a_round_is_not_lost() -> None:
    async def woken() -> float:
        service.loop.wake()
        return 3600.0

    service = Service(woken)
    service.loop.start()
    await service.seen(2)
    await service.loop.stop()


async def test_stop_cuts_a_round_short_and_finish_lets_it_end() -> None:
    for ending, expected in ((lambda service: service.loop.stop(), False), (lambda service: service.loop.finish(5.0), True)):
        began, over, door = asyncio.Event(), [False], asyncio.Event()

        async def slow(began: Any = began, over: Any = over, door: Any = door) -> float:
            began.set()
            await door.wait()
            over[0] = True
            return 0.0

        service = Service(slow)
        service.loop.start()
        await began.wait()
        asyncio.get_running_loop().call_later(0.05, door.set)
        await ending(service)
        assert over == [expected]
        assert service.ticks == 1


async def test_finish_does_not_wait_for_ever() -> None:
    async def stuck() -> float:
        await asyncio.Event().wait()
        return 0.0

    service = Service(stuck)
    service.loop.start()
    await service.seen(1)
    await asyncio.wait_for(service.loop.finish(0.05), 5)


async def test_finish_ends_a_rest_at_once() -> None:
    service = Service(last=3600.0)
    service.loop.start()
    await service.seen(1)
    await asyncio.wait_for(service.loop.finish(60.0), 5)
    assert service.ticks == 1


@pytest.mark.usefixtures("quick")
async def test_an_error_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    service = Service(ValueError("a"), ValueError("b"), 0.0)
    service.loop.start()
    await service.seen(4)
    await service.loop.stop()
    assert [str(error) for error in service.errors] == ["a", "b"]
    assert service.fatal == []
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR", "INFO"] or caplog.records[0].levelname == "ERROR"


@pytest.mark.usefixtures("quick")
async def test_weather_is_said_once_and_is_never_fatal(caplog: pytest.LogCaptureFixture) -> None:
    service = Service(*[ConnectionError("away")] * 100, 0.0)
    service.loop.start()
    await service.seen(102)
    await service.loop.stop()
    assert service.fatal == []
    assert len(service.errors) == 100
    assert sum("test waits" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.usefixtures("quick")
async def test_what_fails_again_and_again_for_long_is_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "FATAL_SILENCE", 0.0)
    service = Service(*[ValueError(str(n)) for n in range(FATAL_FAILURES)])
    service.loop.start()
    await service.seen(FATAL_FAILURES + 1)
    await service.loop.stop()
    assert [str(error) for error in service.fatal] == [str(FATAL_FAILURES - 1)]


@pytest.mark.usefixtures("quick")
async def test_a_burst_of_errors_is_not_fatal_yet() -> None:
    service = Service(*[ValueError()] * (3 * FATAL_FAILURES))
    service.loop.start()
    await service.seen(3 * FATAL_FAILURES + 1)
    await service.loop.stop()
    assert service.fatal == []


@pytest.mark.usefixtures("quick")
async def test_good_rounds_in_between_keep_it_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "FATAL_SILENCE", 0.0)
    service = Service(*[ValueError(), ValueError(), 0.0] * FATAL_FAILURES)
    service.loop.start()
    await service.seen(3 * FATAL_FAILURES)
    await service.loop.stop()
    assert service.fatal == []


async def test_a_failing_round_is_followed_by_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def rest(self: Any, pause: float) -> None:
        pauses.append(pause)
        await asyncio.sleep(0)

    monkeypatch.setattr(Loop, "_rest", rest)
    service = Service(*[ConnectionError()] * 12, 0.25)
    service.loop.start()
    await service.seen(13)
    await service.loop.stop()
    assert all(0 < pause <= 1.5 * loop_module.LONGEST_BACKOFF for pause in pauses[:12])
    assert pauses[0] < 0.2 < pauses[5]
    assert pauses[12] == 0.25


async def test_the_age_of_the_last_good_round_is_known() -> None:
    service = Service(0.0, ValueError(), last=3600.0)
    service.loop.last_good = 0.0
    service.loop.start()
    await service.seen(2)
    good = service.loop.last_good
    assert good > 0
    service.loop.wake()
    await service.loop.stop()
    assert service.loop.last_good == good


async def cancelled_inside() -> float:
    """What it waits for is cancelled, by somebody else."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future
    return 0.0


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("error", [cancelled_inside, BaseException("the root"), GeneratorExit(), asyncio.CancelledError()])
async def test_what_is_no_exception_does_not_end_it_either(error: Any) -> None:
    """Case E6: a loop that ends in silence leaves a worker that looks healthy and works no more."""
    service = Service(error, error, 0.0)
    service.loop.start()
    await service.seen(4)
    await service.loop.stop()
    assert len(service.errors) == 2


async def test_a_loop_that_is_cancelled_itself_ends() -> None:
    service = Service()
    service.loop.start()
    await service.seen(1)
    (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "jobwell test")
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()
    assert service.fatal == []


@pytest.mark.usefixtures("quick")
async def test_an_error_that_cannot_even_be_said_is_fatal() -> None:
    """Case E6: the application's own filter of logs breaks."""

    def broken(record: Any) -> bool:
        raise ValueError("broken")

    loop_module.log.addFilter(broken)
    try:
        service = Service(ValueError("a"))
        service.loop.start()
        await auntil(lambda: service.fatal)
    finally:
        loop_module.log.removeFilter(broken)
    await service.loop.stop()
    assert [str(error) for error in service.fatal] == ["broken"]

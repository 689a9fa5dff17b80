"""Drains: which jobs run, in which order, until when."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from jobwell.app import App
from jobwell.testing.clock import Clock
from jobwell.testing.driver import Beside
from jobwell.testing.errors import EndlessDrain, TestbedError
from jobwell.testing.runner import Runner, bare
from jobwell.testing.views import Drained, Ran

if TYPE_CHECKING:
    from jobwell.testing.inline import Inline

__tracebackhide__ = True  # pytest shows the test and the task, not what is between

LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """What one drain is to do.

    Attributes:
        queues: it serves.
        limit: attempts at the most.
        until_empty: also what its jobs enqueue.
        later: states in which jobs wait that the clock travels to.
        raising: stop at the first error of a task.
    """

    queues: Sequence[str]
    limit: int
    until_empty: bool
    later: Sequence[str]
    raising: bool


def queues(app: App, given: str | Iterable[str]) -> tuple[str, ...]:
    """The queues that are meant.

    Raises:
        TestbedError: the app does not declare one of them.
    """
    if not isinstance(given, str) and not (isinstance(given, Iterable) and all(isinstance(name, str) for name in given)):
        raise TestbedError(f"a drain takes the name of a queue, or several; {given!r} is none")
    wanted = (given,) if isinstance(given, str) else tuple(given)
    unknown = [name for name in wanted if name not in app.queues]
    if unknown:
        raise TestbedError(f"the app declares no queue {unknown[0]!r}; declared are {', '.join(app.queues)}")
    return wanted or app.queues


def states(retries: bool, scheduled: bool) -> tuple[str, ...]:  # noqa: FBT001  as the drain was given them
    """Where a drain goes on, travelling."""
    if scheduled:
        return ("scheduled", "retrying")
    return ("retrying",) if retries else ()


async def drain(runner: Runner, plan: Plan, clock: Clock) -> Drained:
    """Run jobs by a plan.

    Raises:
        EndlessDrain: there was still work at its limit.
    """
    ran: list[Ran] = []
    async with runner.at_work():
        await runner.keep_house()
        only = None if plan.until_empty else [job.id for job in runner.ready(plan.queues, None, plan.limit + 1)]
        while True:
            while len(ran) < plan.limit and (one := await runner.run_next(plan.queues, only)) is not None:
                ran.append(one)
                _raise_of(one, raising=plan.raising)
            if runner.ready(plan.queues, only, 1) and len(ran) >= plan.limit:
                raise EndlessDrain(_endless(ran, plan.limit))
            due = runner.next_due(plan.queues, plan.later) if plan.later else None
            if due is None:
                if plan.until_empty and await runner.go_on_undoing():
                    continue
                return Drained(tuple(ran))
            if len(ran) >= plan.limit:
                raise EndlessDrain(_endless(ran, plan.limit))
            if due > clock.now():
                clock.travel_to(due)
            await runner.keep_house()


async def inline(runner: Runner, mode: "Inline", queues: Sequence[str], there: Callable[[Sequence[UUID]], set[UUID]]) -> None:
    """Run what inline mode has waiting, and what that enqueues."""
    ran: list[Ran] = []
    async with runner.at_work():
        while mode.waiting:
            one = await runner.run_next(queues, mode.waiting)
            if one is None:
                break
            if one.outcome != "lost":  # one that is lost is rescued, and runs again
                mode.waiting.remove(one.id)
            ran.append(one)
            _raise_of(one, raising=mode.raising)
            if len(ran) >= LIMIT:
                raise EndlessDrain(_endless(ran, LIMIT))
    if mode.waiting:  # what is there and not ready is for later; what is not there waits for its commit
        gone = there(mode.waiting)
        mode.waiting[:] = [job for job in mode.waiting if job not in gone]


async def lose(runner: Runner, job: UUID) -> bool:
    """Claim a job by a worker that vanishes. False: it was not ready."""
    async with runner.at_work():
        return await runner.lose(job)


@asynccontextmanager
async def beside() -> AsyncIterator[Beside]:
    """Threads for plain functions while the loop of the test goes on; joined at the end."""
    threads = Beside(asyncio.get_running_loop())
    try:
        yield threads
    finally:
        threads.close()


def _raise_of(one: Ran, *, raising: bool) -> None:
    if raising and one.error is not None:
        one.error.add_note(f"raised by attempt {one.attempt} of job {one.id} ({one.task}); it is recorded as {one.outcome}")
        raise bare(one.error)


def _endless(ran: Sequence[Ran], limit: int) -> str:
    most = ", ".join(f"{task} ran {count} times" for task, count in Counter(one.task for one in ran).most_common(3))
    return (
        f"{limit} attempts have run and there is still work: {most}. Does a job enqueue itself for ever? Otherwise give a"
        " higher `limit`, or `until_empty=False`"
    )

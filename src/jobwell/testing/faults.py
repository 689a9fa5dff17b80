"""Failures on demand: an error in the place of a task's work, or after it; a worker that vanishes."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jobwell.worker.middleware import Call, Middleware

__tracebackhide__ = True  # pytest shows the test and the task, not what is between

Error = BaseException | type[BaseException] | Callable[[], BaseException]


class Vanished(BaseException):
    """Ends an attempt whose worker is to vanish. Nothing of it is stored."""


@dataclass(eq=False, slots=True)
class Fault:
    """What the next attempts of a task run into.

    Attributes:
        task: its name.
        make: makes the error.
        left: how many attempts more.
        after: the work is done first.
        met: how many attempts have run into it.
    """

    task: str
    make: Callable[[], BaseException]
    left: int
    after: bool
    met: int = 0


class Faults:
    """The faults that are armed."""

    def __init__(self) -> None:
        self._armed: list[Fault] = []

    @contextlib.contextmanager
    def arm(self, fault: Fault) -> Iterator[Fault]:
        """For the length of the block."""
        self._armed.append(fault)
        try:
            yield fault
        finally:
            self._armed.remove(fault)

    def of(self, task: str) -> Fault | None:
        """The one that the next attempt of a task runs into; the innermost block goes first."""
        return next((fault for fault in reversed(self._armed) if fault.task == task and fault.left > 0), None)


def saboteur(fault: Fault) -> Middleware:
    """The innermost middleware: the app's own sees the error as if the task had raised it."""

    async def sabotage(_: Any, call: Call) -> Any:
        fault.left -= 1
        fault.met += 1
        if fault.after:
            await call()
        raise fault.make()

    return sabotage


class Spy:
    """The outermost middleware: keeps the error itself, of which the store keeps texts only."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __call__(self, _: Any, call: Call) -> Awaitable[Any]:
        """Called as any middleware."""
        return self._watch(call)

    async def _watch(self, call: Call) -> Any:
        try:
            return await call()
        except BaseException as error:
            self.error = error
            raise


def maker(error: Error) -> Callable[[], BaseException]:
    """Makes the error for each attempt: an instance is raised again without its old traceback."""
    if isinstance(error, BaseException):
        kept = error
        return lambda: kept.with_traceback(None)
    return error

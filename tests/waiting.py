"""Waiting in tests: for a condition, with a deadline. Nothing else in the tests lets time pass."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 20.0  # for what takes a moment on an idle machine
LOOK = 0.005


def until(condition: Callable[[], T], timeout: float = PATIENCE, what: str = "") -> T:
    """Wait until the condition is true, and give its value; fail after the deadline."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what or condition}"
        pause(LOOK)
    return found


async def auntil(condition: Callable[[], T | Awaitable[T]], timeout: float = PATIENCE, what: str = "") -> T:
    """As `until`, on a running loop; the condition may be async."""
    deadline = time.monotonic() + timeout
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what or condition}"
        await asyncio.sleep(LOOK)


def pause(seconds: float) -> None:
    """Let a thread, or a job on a thread, take so long."""
    time.sleep(seconds)


async def apause(seconds: float) -> None:
    """Let a job on a loop take so long."""
    await asyncio.sleep(seconds)

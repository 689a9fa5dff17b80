"""Signals and the life of the parent, as events on a loop."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable

SAME_WISH = 1.0
STOPPING = (signal.SIGTERM, signal.SIGINT)


def on_stop(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Call `stop` on the loop at each SIGTERM or SIGINT; what comes within a second of the first is the same wish.

    An orchestrator that signals all processes of a group, and a supervisor that passes its own signal on, would otherwise end the
    grace at once.
    """
    first: float | None = None

    def told() -> None:
        nonlocal first
        now = time.monotonic()
        if first is None or now - first > SAME_WISH:
            first = now if first is None else first
            stop()

    for number in STOPPING:
        try:
            loop.add_signal_handler(number, told)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(told))


def on_end_of(descriptor: int, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    """Call `ended` on the loop when the other end of a pipe is closed: its process is gone, however it went."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(descriptor, 4096):
                pass
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(ended)

    threading.Thread(target=watch, name="jobwell-parent", daemon=True).start()

"""Signals and the life of the parent, as events on a loop."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable

STOPPING = (signal.SIGTERM, signal.SIGINT)


def on_stop(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Call `stop` on the loop at each SIGTERM or SIGINT."""
    for number in STOPPING:
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))


def on_end_of(descriptor: int, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    """Call `ended` on the loop when the other end of a pipe is closed: its process is gone, however it went."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(descriptor, 4096):
                pass
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(ended)

    threading.Thread(target=watch, name="jobwell-parent", daemon=True).start()

"""A service is a `tick()`: start, stop, jitter, wake-up and error policy are here, once."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

log = logging.getLogger("jobwell.loop")

FATAL_FAILURES = 10  # unexpected errors in a row, and no good round for a minute: the loop is no use, and must say so
FATAL_SILENCE = 60.0
LONGEST_BACKOFF = 5.0


class Loop:
    """Runs one service.

    Args:
        name: for logs and health.
        tick: does one round and returns the seconds to wait before the next; a wake-up ends the wait early.
        expected: errors that are weather (the database is away): backed off, logged once per outage, never fatal.
        on_fatal: called when the loop fails again and again for other reasons.
        on_error: called with each error.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], Awaitable[float]],
        *,
        expected: Callable[[BaseException], bool],
        on_fatal: Callable[[str, BaseException], None],
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.name = name
        self.last_good = time.monotonic()
        self._tick = tick
        self._expected = expected
        self._on_fatal = on_fatal
        self._on_error = on_error
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unexpected = 0
        self._failing = 0
        self._ending = False
        self._due = time.monotonic()

    @property
    def late(self) -> float:
        """Seconds for which a good round has been due: 0 while it rests as it said, or goes round well."""
        return max(0.0, time.monotonic() - self._due)

    def start(self) -> None:
        """Start; nothing happens when it runs already."""
        if self._task is None:
            self.last_good = self._due = time.monotonic()  # it may have been made long before
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"jobwell {self.name}")
            self._task.add_done_callback(self._over)

    def _over(self, task: "asyncio.Task[None]") -> None:
        """It has ended, and nobody stopped it (a handler of logs that fails, for one): it must not be missing in silence."""
        if self._task is task and not task.cancelled() and (error := task.exception()) is not None:
            self._on_fatal(self.name, error)

    async def stop(self) -> None:
        """Stop, in the middle of a tick if need be. Safe twice, and unstarted."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def finish(self, seconds: float) -> None:
        """Let the round under way come to its end, for so long at the most, and begin no other."""
        self._ending = True
        self.wake()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=seconds)
        await self.stop()

    def wake(self) -> None:
        """Begin the next round now."""
        self._wake.set()

    async def _run(self) -> None:
        while not self._ending:
            self._wake.clear()
            try:
                pause = await self._tick()
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise  # this loop is meant, and not something that it waited for
                pause = self._failed(error)
            else:
                if self._failing:
                    log.info("%s works again after %d failed rounds", self.name, self._failing)
                    self._failing = self._unexpected = 0
                self.last_good = time.monotonic()
                self._due = self.last_good + pause
            if not self._ending:
                await self._rest(pause)

    async def _rest(self, pause: float) -> None:
        if pause <= 0 or self._wake.is_set():
            await asyncio.sleep(0)
            return
        timer = asyncio.get_running_loop().call_later(pause, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _failed(self, error: BaseException) -> float:
        self._failing += 1
        if self._on_error is not None:
            self._on_error(error)
        if self._expected(error):
            if self._failing == 1:
                log.warning("%s waits: %s", self.name, error)
        else:
            self._unexpected += 1
            log.error("%s failed: %s", self.name, str(error) or type(error).__name__, exc_info=error)
            if self._unexpected >= FATAL_FAILURES and time.monotonic() - self.last_good > FATAL_SILENCE:
                self._on_fatal(self.name, error)
        longest = min(LONGEST_BACKOFF, 0.05 * 2.0 ** min(self._failing, 10))
        return longest * random.uniform(0.5, 1.5)  # noqa: S311

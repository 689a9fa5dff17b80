"""Whether wake-ups arrive: proved by hearing oneself, and believed for a while.

LISTEN through a pooler in transaction mode succeeds and receives nothing, and so does one on a server that is no longer the
primary. So the worker sends a notification to itself over its ordinary connection, and waits for it where it listens.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from uuid import UUID

from jobwell.core.errors import StoreError
from jobwell.core.ids import new_id
from jobwell.store.database import is_lost
from jobwell.store.link import Link
from jobwell.store.statements import arun
from jobwell.store.workers import WorkerVerbs

log = logging.getLogger("jobwell.worker")

HEARD_WITHIN = 1.0  # seconds from the commit of the notification
PROVE_EVERY = 60.0  # seconds
TRY_AGAIN = 5.0  # seconds after a proof that failed

Ask = Callable[[str, Callable[[], None]], None]


class Ears:
    """The mode of wake-ups, 'notify' or 'poll', as it was last proved. Used by the heartbeat's thread.

    Args:
        ask: sends the text to this worker's own channel, over the ordinary connection, and calls back after the commit.
        poll: seconds between two looks for work without wake-ups, for the warning.
        clock: monotonic seconds.
    """

    def __init__(self, ask: Ask, poll: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.mode = "poll"
        self._ask = ask
        self._poll = poll
        self._clock = clock
        self._listens = False
        self._open = ""  # the text that has not come back
        self._asked_at = self._next_at = 0.0
        self._sent: tuple[str, float] = ("", 0.0)
        self._said: str | None = None

    def begin(self) -> None:
        """A new connection listens; nothing is proved yet."""
        self.mode, self._listens = "poll", True
        self._send()

    def end(self) -> None:
        """The connection is gone."""
        self.mode, self._listens, self._open = "poll", False, ""

    def deaf(self, why: str) -> None:
        """This connection does not bring wake-ups. Said once, until the reason changes."""
        self.mode, self._open = "poll", ""
        self._next_at = self._clock() + TRY_AGAIN
        if why != self._said:
            self._said = why
            log.warning("wake-ups: poll, every %g s at the latest: %s", self._poll, why)

    def heard(self, text: str) -> None:
        """Something came on this worker's own channel."""
        if text != self._open:
            return
        self.mode, self._open, self._next_at = "notify", "", self._clock() + PROVE_EVERY
        if self._said != "":
            self._said = ""
            log.info("wake-ups: notify")

    def look(self) -> None:
        """Judge what did not come back, and ask again when it is time."""
        now = self._clock()
        if not self._listens:
            return
        if not self._open:
            if now >= self._next_at:
                self._send()
            return
        text, sent_at = self._sent
        if text == self._open:
            if now - sent_at > HEARD_WITHIN:
                self.deaf(
                    "a notification to myself did not come back, so LISTEN is of no use on this connection (a pooler in"
                    " transaction mode?); set direct_url (JOBWELL_DIRECT_URL) to the server past the pooler"
                )
        elif now - self._asked_at > TRY_AGAIN:  # it could not even be sent: no verdict
            self._send()

    def _send(self) -> None:
        text = self._open = new_id().hex
        self._asked_at = self._clock()

        def sent() -> None:
            self._sent = (text, self._clock())

        self._ask(text, sent)


class Echo:
    """Sends notifications to oneself, on the loop.

    Args:
        link: the ordinary connection; one of those that the worker has anyway.
        on_loop: schedules a call on the loop, from any thread.
    """

    def __init__(self, link: Link, workers: WorkerVerbs, worker: UUID, on_loop: Callable[[Callable[[], None]], None]) -> None:
        self._link = link
        self._workers = workers
        self._worker = worker
        self._on_loop = on_loop
        self._task: asyncio.Task[None] | None = None

    def ask(self, text: str, sent: Callable[[], None]) -> None:
        """Send the text, and tell when it is committed. From any thread."""

        def begin() -> None:
            self._task = asyncio.get_running_loop().create_task(self._send(text, sent))

        self._on_loop(begin)

    async def _send(self, text: str, sent: Callable[[], None]) -> None:
        try:
            async with self._link.use() as conn:
                await arun(conn, self._workers.echo(self._worker, text))
            sent()
        except Exception as error:
            if not (is_lost(error) or isinstance(error, StoreError)):
                raise

    async def close(self) -> None:
        """End what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

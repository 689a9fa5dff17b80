"""How reports get away: as mail, or through the hook of the app."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from jobwell.core.letter import Report
from jobwell.core.smtp import Server
from jobwell.core.text import clean, flat
from jobwell.reports import mail
from jobwell.worker.executors.threads import Threads

HOOK = 30.0  # seconds for one call of the hook
MARGIN = 10.0  # seconds beyond a mail's own deadline, which tells more


class Sender:
    """Sends.

    Args:
        server: where mail is handed over; None: no mail.
        hook: what is called with the rest, or with all where there is no mail.
        threads: where mail is sent, and a plain hook runs.
    """

    def __init__(self, server: Server | None, hook: Callable[[Report], Any] | None, threads: Threads) -> None:
        self._server = server
        self._hook = hook
        self._threads = threads
        self._calls: set[asyncio.Future[BaseException | None]] = set()

    @property
    def has_hook(self) -> bool:
        """Whether it reaches those without an address."""
        return self._hook is not None

    async def deliver(self, made: Report, done: list[str]) -> dict[str, str]:
        """Hand it over to those who do not have it yet; `done` grows with who does. Returns who was refused, and why."""
        waiting = [who for who in made.recipients if who not in done]
        by_mail = [who for who in waiting if "@" in who] if self._server is not None else []
        by_hook = [who for who in waiting if who not in by_mail]
        refused: dict[str, str] = {}
        if by_mail and self._server is not None:
            refused = await self._mail(self._server, made, by_mail)
            done += by_mail
        if by_hook:
            await self._call(made, by_hook)
            done += by_hook
        return refused

    async def _mail(self, server: Server, made: Report, recipients: Sequence[str]) -> dict[str, str]:
        """On a thread, with a loop of its own: to encode megabytes takes a moment, in which jobs on this loop would wait."""
        call = self._threads.submit(lambda: asyncio.run(mail.send(server, made, recipients)))
        try:
            return cast("dict[str, str]", await asyncio.wait_for(call, mail.WHOLE + MARGIN))
        except TimeoutError:
            raise mail.NotSent(f"the mail server {server.place} was not through within {mail.WHOLE + MARGIN:g} s") from None

    async def _call(self, made: Report, recipients: Sequence[str]) -> None:
        hook = self._hook
        if hook is None:
            raise mail.NotSent(f"no hook here takes {', '.join(recipients)}")
        given = replace(made, recipients=tuple(recipients))
        on_loop = any(map(inspect.iscoroutinefunction, (hook, getattr(hook, "__call__", None))))  # noqa: B004  objects too
        call: asyncio.Future[BaseException | None] = (
            asyncio.ensure_future(_on_loop(hook, given)) if on_loop else self._threads.submit(partial(_on_thread, hook, given))
        )
        self._calls.add(call)  # the loop holds tasks weakly, and one may be left behind
        call.add_done_callback(self._calls.discard)
        try:
            await asyncio.wait([call], timeout=HOOK)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if not call.done():
            call.cancel()
            raise mail.NotSent(f"the hook did not end within {HOOK:g} s")
        if (raised := call.result()) is not None:
            raise mail.NotSent(f"the hook raised {said(raised)}") from raised


# What a hook raises is a value: SystemExit would end the loop with it.


async def _on_loop(hook: Callable[[Report], Any], made: Report) -> BaseException | None:
    try:
        await hook(made)
    except BaseException as error:  # noqa: BLE001  written down as the reason why it is not sent
        return error
    return None


def _on_thread(hook: Callable[[Report], Any], made: Report) -> BaseException | None:
    try:
        hook(made)
    except BaseException as error:  # noqa: BLE001  as above
        return error
    return None


def said(error: BaseException) -> str:
    """Why something is not sent, on one line."""
    if isinstance(error, mail.NotSent):
        return error.message
    return flat(clean(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, 500))

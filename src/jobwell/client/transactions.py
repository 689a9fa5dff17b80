"""Enqueue within the caller's transaction: the job commits or vanishes with the caller's rows."""

import os
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self

from jobwell.client.guard import Guard
from jobwell.core.errors import TransactionMisuse

PLAIN_ADVICE = "use `using(conn=…)`, or enqueue without `within`"

ELSEWHERE = (
    "`app.within(…)` was entered in another context than it is left in, as frameworks do with the steps of a generator"
    " (FastAPI's plain `yield` dependencies, fixtures): what was enqueued meanwhile did NOT go through this connection, but was"
    " committed at once. Let the dependency yield the connection, and enqueue by `task.using(conn=conn)` or"
    " `app.enqueue_many(…, conn=conn)`"
)


class Within:
    """`with app.within(conn): …` — every enqueue inside goes through that connection. Never commits, never rolls back."""

    def __init__(self, guard: Guard, connection: Any) -> None:
        self._guard = guard
        self.connection = connection
        self.open = False
        self.process = 0
        self._token: Token[Within | None] | None = None

    def __enter__(self) -> Self:
        self._guard.check(self.connection)
        self.process = os.getpid()
        self._token = _current.set(self)
        self.open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.open = False
        token, self._token = self._token, None
        if token is None:
            return
        try:
            _current.reset(token)
        except ValueError:
            if error is None:
                raise TransactionMisuse(ELSEWHERE) from None


_current: ContextVar[Within | None] = ContextVar("jobwell.within", default=None)


def current() -> Any | None:
    """The connection of the innermost `within`, or None.

    Raises:
        TransactionMisuse: that `within` has ended (a task or thread that began inside it goes on), or was entered before a fork.
    """
    inside = _current.get()
    if inside is None:
        return None
    if not inside.open:
        raise TransactionMisuse(
            "this code began inside `app.within(…)`, which has ended since; its transaction may be over."
            f" Nothing was enqueued; {PLAIN_ADVICE}"
        )
    if inside.process != os.getpid():
        raise TransactionMisuse(
            "this process was forked inside `app.within(…)`: the connection is its parent's, and two processes on one connection"
            f" mix their answers. Nothing was enqueued; {PLAIN_ADVICE} with a connection of this process"
        )
    return inside.connection


def is_inside() -> bool:
    """Whether a `within` is open here."""
    inside = _current.get()
    return inside is not None and inside.open


def refuse_waiting() -> None:
    """Refuse to wait for a job inside an open `within`.

    Raises:
        TransactionMisuse: the job may be one of this transaction, which commits only after the waiting.
    """
    if is_inside():
        raise TransactionMisuse(
            "waiting for a job inside `app.within(…)` would wait for ever: a job enqueued here begins after your transaction has"
            " committed. Keep the handle, and ask for its result behind the block"
        )

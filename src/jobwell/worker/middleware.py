"""Middleware: code around every attempt of an app, outermost first.

    async def timing(ctx, call):
        began = time.perf_counter()
        try:
            return await call()
        finally:
            ...

It runs on the worker's loop, also around plain tasks. It may raise what a task may raise.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from jobwell.core.context import Context, SyncContext

Call = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context | SyncContext, Call], Awaitable[Any]]


def compose(middleware: Sequence[Middleware], context: Context | SyncContext, call: Call) -> Call:
    """Fold the chain around a call."""
    for outer in reversed(middleware):
        call = _around(outer, context, call)
    return call


def _around(outer: Middleware, context: Context | SyncContext, inner: Call) -> Call:
    return lambda: outer(context, inner)

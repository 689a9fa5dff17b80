"""`ctx.step`: what was done is done once, what is not known is not repeated blindly."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from jobwell import (
    App,
    CannotTell,
    Context,
    DeclarationError,
    DidNotHappen,
    Fixed,
    Happened,
    Reject,
    Retry,
    SyncContext,
)
from jobwell.store import steps as stored
from jobwell.store.statements import run
from jobwell.testing import Testbed
from tests.worker.helpers import Desk, working
from tests.waiting import auntil

AGAIN = Fixed("0s", attempts=3)


@dataclass
class Receipt:
    number: int
    amount: Decimal


class Bank:
    """The outside system: what has happened there, and what it answers."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.keys: list[str] = []
        self.errors: list[Exception] = []
        self.threads: set[int] = set()

    def pay(self, amount: Decimal, idempotency_key: str) -> Receipt:
        self.threads.add(threading.get_ident())
        return self._pay(amount, idempotency_key)

    async def apay(self, amount: Decimal, *, idempotency_key: str) -> Receipt:
        return self._pay(amount, idempotency_key)

    def _pay(self, amount: Decimal, key: str) -> Receipt:
        self.keys.append(key)
        if self.errors:
            error = self.errors.pop(0)
            if not isinstance(error, Reject | ConnectionRefusedError):
                self.done.append(amount)
            raise error
        self.done.append(amount)
        return Receipt(len(self.done), amount)


@pytest.fixture
def bank() -> Bank:
    return Bank()


def rows(desk: Desk, job: Any) -> list[dict[str, Any]]:
    return run(desk.conn, stored.of_job(desk.app.database.statements, job.id))


def states(desk: Desk, job: Any) -> list[tuple[str, str]]:
    return [(row["name"], row["state"]) for row in rows(desk, job)]


@pytest.mark.parametrize("colour", ["async", "plain in async", "plain", "process"])
async def test_a_second_attempt_gets_what_was_done(app: App, desk: Desk, bank: Bank, colour: str) -> None:
    tries = []

    if colour == "plain":

        @app.task(name="pay", retry=AGAIN)
        def pay(ctx: SyncContext, amount: Decimal) -> Receipt:
            receipt = ctx.step("pay", bank.pay, amount)
            tries.append(receipt)
            if ctx.attempt < 3:
                raise Retry
            return receipt

    else:
        fn: Any = bank.pay if colour == "plain in async" else bank.apay

        @app.task(name="pay", retry=AGAIN)
        async def pay(ctx: Context, amount: Decimal) -> Receipt:
            receipt: Receipt = await ctx.step("pay", fn, amount)
            tries.append(receipt)
            if ctx.attempt < 3:
                raise Retry
            return receipt

    async with working(app):
        job = pay.enqueue(Decimal("1.50"))
        await desk.end(job)
    assert desk.state(job) == "succeeded"
    assert tries == [Receipt(1, Decimal("1.50"))] * 3
    assert (bank.done, bank.keys) == ([Decimal("1.50")], [f"{job.id}:pay"])
    assert threading.get_ident() not in bank.threads
    (row,) = rows(desk, job)
    assert (row["state"], row["attempt"], row["unknown"], row["kept"]) == ("done", 1, "repeat", True)

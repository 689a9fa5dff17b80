"""Limits as code declares them, put into the store without the code."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from uuid import UUID

import orjson

from jobwell.core.catalog import Catalog
from jobwell.core.ids import new_id
from jobwell.core.limits import Declared, Kind, Per, Rates, rates
from jobwell.store import limits
from jobwell.store.jobs import Batch, Claimed
from jobwell.store.statements import run
from jobwell.worker.streams import Rotation
from tests.store.helpers import DONE, GATE, TASK, Hand, Store, ids


def row(
    kind: Kind,
    name: str,
    concurrency: int | None = None,
    rate: Rates | None = None,
    *,
    per: Per = "fleet",
    weight: float | None = None,
) -> Declared:
    """One declaration."""
    return Declared(kind, name, per, concurrency, rates(rate), weight)


def declare(store: Store, *rows: Declared, worker: UUID | None = None) -> int:
    """As a worker does that starts."""
    return run(store.conn, limits.publish(store.statements, worker or new_id(), Catalog(), rows))


def gate(store: Store, number: int = GATE, task: str = TASK, *resources: str, **lock: Any) -> None:
    """Say what is behind a gate."""
    given = {"gate": number, "task": task, "resources": resources, "busy": "wait", "ordered": False, "key_rates": None} | lock
    run(store.conn, _gates(store, [given]))


def _gates(store: Store, given: list[dict[str, Any]]) -> Any:
    yield store.statements("limits.gates", given=orjson.dumps(given).decode())


def stored(rate: Rates) -> list[dict[str, Any]]:
    """A rate as the store keeps it."""
    return [each.stored() for each in rates(rate)]


async def finish(hand: Hand, rows: Iterable[Claimed], claim: UUID | None = None) -> None:
    """All of these, by the last claim of the hand."""
    rows = list(rows)
    if rows:
        assert not await hand.end(DONE, *[(job, claim or hand.claim_id) for job in ids(rows)])


async def together(hands: list[Hand], act: Callable[[Hand], Awaitable[list[Claimed]]]) -> list[list[Claimed]]:
    """The same by all of them at once, each ready before the first begins."""
    ready = asyncio.Barrier(len(hands))

    async def one(hand: Hand) -> list[Claimed]:
        await ready.wait()
        return await act(hand)

    return await asyncio.gather(*map(one, hands))


async def turn(hand: Hand, rotation: Rotation, want: int, **ask: Any) -> list[Claimed]:
    """One claim as the fetcher makes it."""
    rows = Batch()
    for from_rank in rotation.ranks():
        rows = await hand.claim(want, from_rank=from_rank, after_gate=rotation.gate, after_tenant=rotation.tenant, **ask)
        if rows or rows.end is not None:
            rotation.learn(rows, rows.end)
        if rows:
            break
    return rows


async def patient(hand: Hand, want: int = 10, **ask: Any) -> list[Claimed]:
    """A claim as a worker repeats it: once more where another one was just working on the same limit."""
    for _ in range(200):
        batch = await hand.verbs.claim(hand.conn, hand.ask(want, **ask))
        if batch or batch.again is None or batch.again > 0.01:
            return batch
    raise AssertionError("another claim is always at it")

"""Items on their way in: checked, put into blocks, stored; the run is moved on after each block."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jobwell.core.errors import Conflict
from jobwell.runs.shape import Filling, ItemShape
from jobwell.store import runs as store
from jobwell.store.run_items import Intake, Stored
from jobwell.store.statements import arun, run

if TYPE_CHECKING:
    from jobwell.client.client import Client
    from jobwell.store.run_items import Block


def fill(client: "Client", shape: ItemShape, run_id: UUID, rows: Iterable[Any], *, resumes: bool) -> Stored:
    """Store items. A run that is cancelled meanwhile takes no more, which is no error.

    Nor is it one where it is sealed and this is its own input (`resumes`): somebody else has read it to its end.

    Raises:
        Conflict: it is sealed, and these are others.
    """
    statements = client.statements
    intake = Intake(statements, run_id, resumes=resumes)
    for block in shape.blocks(rows):
        with client.connections.plain() as conn:
            try:
                intake.put(conn, block)
            except Conflict:
                if not resumes and run(conn, store.card(statements, run_id)).status != "cancelled":
                    raise
                break
            run(conn, store.turn(statements, run_id))
    return intake.stored


async def afill(
    client: "Client", shape: ItemShape, run_id: UUID, rows: Iterable[Any] | AsyncIterable[Any], *, resumes: bool
) -> Stored:
    """As `fill`, for async code; also of an async iterable."""
    statements = client.statements
    intake = Intake(statements, run_id, resumes=resumes)
    async for block in _blocks(shape, rows):
        async with client.connections.of_loop() as conn:
            try:
                await intake.aput(conn, block)
            except Conflict:
                if not resumes and (await arun(conn, store.card(statements, run_id))).status != "cancelled":
                    raise
                break
            await arun(conn, store.turn(statements, run_id))
    return intake.stored


async def _blocks(shape: ItemShape, rows: Iterable[Any] | AsyncIterable[Any]) -> "AsyncIterator[Block]":
    if not isinstance(rows, AsyncIterable):
        for block in shape.blocks(rows):
            yield block
        return
    filling = Filling(shape)
    async for value in rows:
        if filling.add(value):
            yield filling.take()
    if filling:
        yield filling.take()

"""The application whose workers the chaos test kills: ten percent of all items want a second try, some fail, some add others."""

import contextlib
from typing import Any

from pydantic import BaseModel

from jobwell import App, Conflict, Fixed
from jobwell.core.runs import Card
from jobwell.runs import Items, RunContext
from jobwell.runs.items import Item
from tests.waiting import apause

app = App()


class Record(BaseModel):
    """An item."""

    number: int


storm = app.bulk("storm", item=Record, key="number")


@storm.stage(queue="bulk", chunk=50, window=40, retry=Fixed("50ms", attempts=6, jitter=0))
async def apply(ctx: RunContext, items: Items[Record]) -> None:
    """Chunks, recorded as they go."""
    async for item in items:
        number = item.data.number
        if number % 10 == 3 and item.attempt == 1:
            item.retry("busy")
        elif number % 50 == 7:
            item.fail("locked", "it is locked")
        elif number % 50 == 8:
            item.skip("there already")
        if number % 100 == 0 and number <= 5000:
            with contextlib.suppress(Conflict):  # added by an earlier attempt, and sealed since
                await storm.run(ctx.run).aadd([{"number": number + 100_000}])
        if number % 25 == 0:
            await apause(0.01)


@storm.stage(queue="notifications", after=apply, priority=90, retry=Fixed("50ms", attempts=6, jitter=0))
async def notify(ctx: RunContext, item: Item[Record]) -> None:
    """One by one; the last ones end together."""
    number = item.data.number
    if number % 10 == 4 and ctx.attempt == 1 and item.attempt == 1:
        raise TimeoutError("the gateway is slow")
    if number % 100 == 9:
        item.fail("no_address", "there is no address")


@storm.finish(after=apply, queue="reports")
async def after_apply(ctx: RunContext, summary: Card) -> None:
    """Once."""
    await mark("after_apply", summary.errors)


@storm.finish(queue="reports")
async def at_the_end(ctx: RunContext, summary: Card) -> None:
    """Once."""
    await mark("at_the_end", summary.errors)


async def mark(what: str, value: Any) -> None:
    """A mark, committed at once."""
    async with app.client.connections.of_loop() as conn:
        await conn.execute(
            f"insert into {app.settings.schema}.marks (job, attempt, pid, what) values (%s, 1, %s, %s)", [what, value, what]
        )

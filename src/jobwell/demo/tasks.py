"""What the case declares, as an application would: `jobwell worker jobwell.demo.tasks:app`."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiosmtplib

from jobwell import App, Backoff, Delays, Retry, Tasks
from jobwell.core.runs import Card
from jobwell.demo import mail
from jobwell.demo.office import Office, letter
from jobwell.runs import Item, Items, Operation, RunContext

app = App()
office = Office(app)
tasks = Tasks()  # apart, so that the scenario starts runs in an app of its own
BRIEFLY = Backoff("200ms", factor=2, cap="2s")
CHUNK = 500


@dataclass(frozen=True)
class Event:
    """What a transfer is started with."""

    event_version: str


@dataclass(frozen=True)
class Moved:
    """One person who is transferred."""

    employee_id: int
    department: str


transfer = tasks.bulk("hr.transfer", params=Event, item=Moved, key="employee_id")


@transfer.stage(queue="bulk", chunk=CHUNK, timeout="1m", retry=BRIEFLY, owner="hr-it")
def apply(ctx: RunContext, items: Items[Moved]) -> None:
    """Move these people: their rows and the states of the items commit together."""
    for piece in items.pieces(CHUNK):
        with piece.transaction() as conn:
            ids = [item.data.employee_id for item in piece]
            conn.execute(office.statements["apply"], {"event": ctx.params.event_version, "ids": ids})


@transfer.stage(
    queue="notifications",
    after=apply,
    window=2000,
    timeout="30s",
    deadline="2h",
    owner="hr-it",
    retry=Delays("200ms", "500ms", "1s", "2s"),
)
async def notify(ctx: RunContext, item: Item[Moved]) -> None:
    """Tell one person by mail. The Message-ID is the item's key: whatever is tried again is not delivered again."""
    person = await office.find(item.data.employee_id)
    if person is None:
        item.fail("no_such_employee", f"employee {item.key} is gone")
        return
    news = letter(person, item.data.employee_id, ctx.params.event_version, item.data.department, item.idempotency_key)
    try:
        await office.send(person.email, news)
    except aiosmtplib.SMTPException as error:
        answer = mail.answer(error)
        if answer is None:
            raise
        if answer.code < 500:
            raise Retry(f"the mail server put it off: {answer}") from error
        item.fail("invalid_address", f"the mail server refuses {person.email}: {answer}")


@transfer.finish(after=apply, queue="reports", timeout="1m", retry=BRIEFLY, owner="hr-it")
def recalculate(ctx: RunContext, summary: Card) -> None:
    """Count the heads of each department anew: once, when all are moved; it does not wait for the mail."""
    with office.transaction() as conn:
        conn.execute(office.statements["clear_report"], {"event": ctx.params.event_version})
        conn.execute(office.statements["report"], {"event": ctx.params.event_version})
    ctx.logger.info("the heads of the departments are counted anew", extra={"moved": summary["apply"].done})


many: Operation[Any, dict[str, int]] = tasks.bulk("demo.many", key="n")


@many.stage(queue="bulk", chunk=1000)
async def touch(_ctx: RunContext, items: Items[dict[str, int]]) -> None:
    """Next to nothing, as often as somebody is curious about. A few fail at first."""
    for item in items:
        if item.data["n"] % 1000 == 7 and item.attempt == 1:
            item.fail("locked", f"{item.key} is locked")


@app.task(name="hr.urgent", queue="notifications", priority=90, timeout="10s", retry=BRIEFLY, owner="security")
async def urgent(number: int) -> None:
    """An urgent notice, such as a lost access card. It notes when it began."""
    now = datetime.now(UTC)
    async with office.database() as conn:
        await conn.execute(office.statements["begin"], {"now": now, "number": number})


app.include(tasks)

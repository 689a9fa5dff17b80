"""A bulk operation as the design shows it."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from psycopg import Connection
from pydantic import BaseModel

from jobwell import App
from jobwell.runs import Items, Operation, RunContext
from jobwell.runs.items import Item
from jobwell.store import runs as store
from jobwell.store.statements import run as drive


class Transfer(BaseModel):
    """What a start is given."""

    to: str


class Employee(BaseModel):
    """An item."""

    employee_id: int
    department: str = "Sales"
    email: str | None = None


def people(count: int, first: int = 1) -> list[Employee]:
    """So many of them."""
    return [
        Employee(employee_id=number, department="Finance" if number % 4 == 0 else "Sales")
        for number in range(first, first + count)
    ]


@dataclass
class Office:
    """The operation, and what its functions were called with."""

    app: App
    operation: Operation[Transfer, Employee]
    applied: list[int] = field(default_factory=list)
    notified: list[int] = field(default_factory=list)
    summaries: list[Any] = field(default_factory=list)
    fails: set[int] = field(default_factory=set)
    skips: set[int] = field(default_factory=set)
    raises: list[BaseException] = field(default_factory=list)
    mail_fails: set[int] = field(default_factory=set)


def declare(app: App, chunk: int = 10, **options: Any) -> Office:
    """Two stages and a finish."""
    transfer = app.bulk("hr.transfer", params=Transfer, item=Employee, key="employee_id")
    office = Office(app, transfer)

    @transfer.stage(queue="bulk", chunk=chunk, **options)
    async def apply(ctx: RunContext, items: Items[Employee]) -> None:
        assert ctx.params.to
        if office.raises:
            raise office.raises.pop(0)
        for item in items:
            office.applied.append(item.data.employee_id)
            if item.data.employee_id in office.fails:
                item.fail("locked", f"employee {item.key} is locked")
            if item.data.employee_id in office.skips:
                item.skip("there already")

    @transfer.stage(queue="notifications", after=apply, priority=90)
    async def notify(ctx: RunContext, item: Item[Employee]) -> None:
        office.notified.append(item.data.employee_id)
        if item.data.employee_id in office.mail_fails:
            item.fail("no_address", "there is no address")

    @transfer.finish(after=apply, queue="reports")
    async def recalculate(ctx: RunContext, summary: Any) -> None:
        office.summaries.append(summary)

    return office


@pytest.fixture
def office(app: App) -> Office:
    """It, with chunks of ten."""
    return declare(app)


def check(app: App, conn: "Connection[Any]", run_id: Any) -> None:
    """The counters are those of the rows, and all items are somewhere."""
    statements = app.database.statements
    card = drive(conn, store.card(statements, run_id))
    counted = drive(conn, store.recount(statements, run_id))
    stages = {
        row[0]: row[1]
        for row in conn.execute("select stage, name from run_stages where run_id = %s and kind = 'items'", [run_id])
    }
    for number, name in stages.items():
        stage = card[name]
        assert (stage.done, stage.failed, stage.skipped, stage.cancelled) == counted.get(number, (0, 0, 0, 0))
        assert stage.open >= 0
        if stage.total is not None:
            assert stage.processed + stage.open == stage.total

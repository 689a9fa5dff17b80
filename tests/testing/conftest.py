"""A small application, and its testbed."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from jobwell import App, Context, Fixed, Reject, Snooze, SyncContext
from jobwell.client.task import AsyncTask, Task


@dataclass
class Shop:
    """Tasks of both kinds, and what they have done."""

    app: App
    did: list[Any] = field(default_factory=list)
    welcome: Task[..., Any] = field(init=False)
    pay: AsyncTask[..., Any] = field(init=False)
    order: AsyncTask[..., Any] = field(init=False)
    report: Task[..., Any] = field(init=False)

    def __post_init__(self) -> None:
        app, did = self.app, self.did

        @app.task(name="welcome", queue="notifications", retry=Fixed("10m", attempts=3, jitter=0), tenant="branch")
        def welcome(ctx: SyncContext, employee_id: int, locale: str = "kk", branch: str = "") -> str:
            did.append(("welcome", employee_id, ctx.attempt))
            if employee_id < 0:
                raise TimeoutError("no mail server")
            return f"{locale}:{employee_id}"

        @app.task(name="pay", retry=Fixed("1h", attempts=2, jitter=0))
        async def pay(ctx: Context, n: int, act: str = "") -> int:
            did.append(("pay", n, ctx.attempt))
            match act:
                case "reject":
                    raise Reject("no_account", "there is no account")
                case "snooze":
                    raise Snooze("30m", "not yet")
                case "fail":
                    raise ConnectionResetError("gone")
            return n

        @app.task(name="order", priority=10)
        async def order(n: int) -> None:
            did.append(("order", n, 0))
            await pay.aenqueue(n)
            welcome.enqueue(n)

        @app.task(name="report", queue="reports")
        def report() -> None:
            did.append(("report", 0, 0))
            report.enqueue()

        self.welcome, self.pay, self.order, self.report = welcome, pay, order, report


@pytest.fixture
def shop(app: App) -> Shop:
    """The tasks; declared before the testbed takes the app."""
    return Shop(app)

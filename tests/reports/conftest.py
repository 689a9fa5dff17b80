"""A mail server, failed jobs, and subscriptions that are served by hand."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App
from jobwell.actions import subscriptions as actions
from jobwell.core.report import Wanted
from jobwell.core.subscription import Subscription
from tests.actions.test_report import Failed
from tests.reports.postbox import Postbox


@pytest.fixture
def postbox() -> Iterator[Postbox]:
    """A mail server without TLS."""
    made = Postbox()
    yield made
    made.close()


@pytest.fixture
def boxes() -> Iterator[Callable[..., Postbox]]:
    """Makes others."""
    made: list[Postbox] = []

    def make(**options: Any) -> Postbox:
        made.append(Postbox(**options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@dataclass
class Desk:
    """Subscribes, and looks at what became of it."""

    app: App
    conn: "Connection[Any]"
    failed: Failed

    def subscribe(self, *recipients: str, **given: Any) -> Subscription:
        """Have a report sent at one failure within an hour, unless something else is given."""
        wanted = Wanted(group_by="code", **{name: given.pop(name) for name in Wanted().filters() if name in given})
        usual = {"by": "olga"} if "daily" in given else {"by": "olga", "threshold": 1, "within": 3600.0}
        sub = actions.add(self.app.database, wanted, recipients=recipients or ("a@corp.example",), **usual | given)
        # As if it had been made yesterday.
        self.conn.execute(
            "update report_subscriptions set told_until = told_until - interval '1 day', daily_since = daily_since - interval '1 day' where id = %s",
            [sub.id],
        )
        return sub

    def due(self) -> None:
        """Their time has come."""
        self.conn.execute(
            "update report_subscriptions set look_at = now() - interval '1 s', next_daily = now() - interval '1 s' + (next_daily - next_daily)"
        )

    def now(self, sub: Subscription) -> Subscription:
        """As it is."""
        return actions.one(self.app.database, sub.id)

    def log(self, sub: Subscription) -> list[dict[str, Any]]:
        """What was sent."""
        return actions.log(self.app.database, sub.id)


@pytest.fixture
def desk(app: App, conn: "Connection[Any]") -> Desk:
    """On empty tables."""
    return Desk(app, conn, Failed(app, conn))

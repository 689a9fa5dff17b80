"""Tables, and a task that does what a word says."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App
from jobwell.worker import heartbeat
from tests.worker.helpers import Acts, Desk


@pytest.fixture(autouse=True)
def _quick_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat looks up ten times a second, so that a worker ends as quickly."""
    monkeypatch.setattr(heartbeat, "BLOCKED_AFTER", 0.2)


@pytest.fixture
def desk(app: App, conn: "Connection[Any]") -> Desk:
    """What the store says."""
    return Desk(app, conn)


@pytest.fixture
def acts(app: App) -> Iterator[Acts]:
    """The task, with the defaults of most tests."""
    made = Acts(app, {})
    yield made
    made.open_all()


@pytest.fixture
def acts_with(app: App) -> Iterator[Callable[..., Acts]]:
    """Makes the task with other options."""
    made: list[Acts] = []

    def make(**options: Any) -> Acts:
        made.append(Acts(app, options))
        return made[-1]

    yield make
    for acts in made:
        acts.open_all()

"""A job behind a group of which some have equal jobs that stand for them."""

from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, Dedup
from jobwell.testing import Testbed


@pytest.mark.parametrize("when", ["succeeded", "ended"])
def test_a_window_whose_job_is_forgotten_counts_as_its_success(
    app: App, bed: Testbed, conn: "Connection[Any]", when: Any
) -> None:
    @app.task(name="windowed", dedup=Dedup("n", window="30d"))
    def windowed(n: int) -> None: ...

    @app.task(name="total")
    def total() -> None: ...

    first = windowed.enqueue(1)
    bed.drain()
    conn.execute("delete from finished where id = %s", [first.id])
    alone = app.enqueue_group([windowed.job(n=1)], then=total.job(), when=when)
    mixed = app.enqueue_group([windowed.job(n=1), windowed.job(n=2)], then=total.job(), when=when)
    assert alone.then is not None
    assert mixed.then is not None
    assert (alone.then.status(), mixed.then.status()) == ("ready", "waiting")
    bed.drain()
    assert (alone.then.status(), mixed.then.status()) == ("succeeded", "succeeded")

"""Who did what."""

from typing import Any

import pytest

from jobwell.store import audit
from jobwell.store.statements import run
from tests.store.helpers import Store


def record(store: Store, **row: Any) -> None:
    run(store.conn, audit.record(store.statements, **({"actor": "aida", "action": "quarantine.retry"} | row)))


def test_rows_come_newest_first(store: Store) -> None:
    for n in range(5):
        record(store, target=f"job {n}", detail={"n": n})
    rows = run(store.conn, audit.latest(store.statements, limit=3))
    assert [row["target"] for row in rows] == ["job 4", "job 3", "job 2"]
    assert (rows[0]["actor"], rows[0]["action"], rows[0]["detail"]) == ("aida", "quarantine.retry", '{"n":4}')
    assert rows[0]["at"] >= rows[1]["at"]


def test_what_is_not_said_is_null(store: Store) -> None:
    record(store)
    (row,) = run(store.conn, audit.latest(store.statements, limit=10))
    assert (row["target"], row["detail"]) == (None, None)


def test_a_detail_may_hold_what_json_does_not_know(store: Store) -> None:
    record(store, detail={"ids": {1}, "error": ValueError("x")})
    assert store.count("audit") == 1


def test_it_stands_and_falls_with_what_it_records(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.conn.transaction():
        record(store)
        raise ZeroDivisionError
    assert store.count("audit") == 0

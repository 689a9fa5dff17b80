"""How large the tables are, and who keeps them from getting smaller."""

from datetime import UTC, datetime

import psycopg

from jobwell.store.sizes import sizes
from jobwell.store.statements import run
from tests.store.helpers import Store


def test_each_table_once_with_its_partitions(store: Store) -> None:
    store.put_new(50)
    store.conn.execute("analyze jobs")
    tables = {row["table"]: row for row in run(store.conn, sizes(store.statements))["tables"]}
    assert set(tables) >= {"jobs", "finished", "attempts", "payloads", "quarantine", "workers", "audit", "catalog"}
    assert not [name for name in tables if name[-1].isdigit() or name.endswith("_default")]
    assert tables["jobs"]["rows"] == 50
    assert tables["jobs"]["bytes"] > tables["jobs"]["index_bytes"] > 0
    assert tables["finished"]["bytes"] >= 8 * 2 * 8192  # a day each, with its indexes


def test_the_oldest_finished_day(store: Store) -> None:
    def oldest() -> object:
        return run(store.conn, sizes(store.statements))["oldest_finished_day"]

    put = (
        "insert into finished (id, finished_at, enqueued_at, run_at, rank, attempt, failures, bytes, queue, task, state, tenant)"
        " values (gen_random_uuid(), %s, now(), now(), 1, 1, 0, 2, 'q', 't', 'succeeded', '')"
    )
    store.conn.execute("vacuum analyze finished")
    store.conn.execute(put, [datetime(2020, 2, 3, 23, 59, tzinfo=UTC)])
    assert str(oldest()) == "2020-02-03"


def test_an_old_snapshot_is_named(store: Store, database_url: str) -> None:
    with psycopg.connect(database_url, application_name="a long report") as reader:
        reader.execute("begin isolation level repeatable read")
        reader.execute("select count(*) from pg_class")
        for _ in range(3):
            store.put_new()
        pins = run(store.conn, sizes(store.statements))["pins_vacuum"]
        assert pins is not None
        assert pins["transactions"] >= 3
        assert pins["seconds"] is None or pins["seconds"] >= 0

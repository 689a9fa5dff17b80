"""An enqueue with a key reads the rows of its keys and no more, whatever the statistics say."""

import json
import os
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from jobwell import settings
from jobwell.store.database import Database
from jobwell.store.migrations import migrate
from tests.sql.test_plans import STATISTICS, Table, check, nodes

ROWS = 30_000
FILL = """
insert into jobwell.jobs (id, queue, gate, task, args, dedup_key, dedup)
select gen_random_uuid(), 'q', 1, 't', '{"n": 1}', 'until:' || n, 'done' from generate_series(1, 30000) n;
insert into jobwell.jobs (id, queue, gate, task, args, dedup_key, dedup, dedup_window)
select gen_random_uuid(), 'q', 1, 't', '{"n": 1}', 'window:' || n, 'window', 60 from generate_series(1, 30000) n;
insert into jobwell.dedup (key, job_id, task, since, until)
select dedup_key, id, task, now(), now() + case when right(dedup_key, 1) = '5' then interval '0' else interval '1 day' end from jobwell.jobs where dedup = 'window';
insert into jobwell.dedup_hits (task, key, reason, holder, state, tenant)
select 't', 'until:' || n, 'skipped', gen_random_uuid(), 'ready', '' from generate_series(1, 30000) n;
"""


@pytest.fixture(scope="module")
def filled(database_url: str) -> Iterator[Table]:
    """Keys by the thousand."""
    schema = f"jwdedup_{os.getpid()}"
    migrate(Database(settings.load({"database_url": database_url, "schema": schema})))
    table = Table(psycopg.connect(database_url, autocommit=True), schema, 2 * ROWS)
    table.conn.prepare_threshold = None
    table.do("alter table jobwell.jobs set (autovacuum_enabled = false)")
    table.do(FILL)
    table.watch()
    yield table
    table.conn.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(schema)))
    table.conn.close()


@pytest.fixture(params=STATISTICS)
def table(request: pytest.FixtureRequest, filled: Table) -> Table:
    """As the planner sees it."""
    filled.do(STATISTICS[request.param])
    if request.param == "stale":
        filled.do(
            "update pg_class set reltuples = 0, relpages = 0 where relname like 'dedup%' and relnamespace = 'jobwell'::regnamespace".replace(
                "'jobwell'", f"'{filled.schema}'"
            )
        )
    return filled


def asked(keys: list[str], **more: Any) -> str:
    usual = {
        "until": "done", "span": None, "conflict": "skip", "slides": False, "wait": 0, "longest": 0, "queue": "q", "task": "t", "rank": 100, "gate": 1,
        "tenant": "", "lock_key": "", "bytes": 8, "args": '{"n": 1}', "run_at": None, "delay": 0, "deadline": 60,
    }  # fmt: skip
    return json.dumps([usual | {"id": str(uuid.uuid4()), "key": key} | more for key in keys])


def looked_through(table: Table) -> list[str]:
    """Sequential scans, and many rows read, of what belongs to keys."""
    return [
        f"{node['Node Type']} of {node.get('Relation Name')}"
        for plan in table.plans
        for node in nodes(plan["Plan"])
        if str(node.get("Relation Name", "")).startswith("dedup")
        and (node["Node Type"] == "Seq Scan" or node.get("Actual Rows", 0) * node.get("Actual Loops", 1) > 3000)
    ]


@pytest.mark.parametrize("count", [1, 300])
@pytest.mark.parametrize(
    ("prefix", "terms"),
    [("until", {}), ("until", {"conflict": "replace"}), ("window", {"until": "window", "span": 60, "slides": True})],
    ids=["until", "replace", "window"],
)
def test_held_keys(table: Table, prefix: str, terms: dict[str, Any], count: int) -> None:
    held = asked([f"{prefix}:{n}" for n in range(10, 10 + 10 * count, 10)], **terms)
    answers: list[Any] = []
    for call in ("dedup_add(%s::json, null, 2048)", "dedup_suppress(%s::json, null, 2048)"):
        check(table, lambda call=call: answers.append(table.run(f"select * from jobwell.{call}", [held])), bound=1500)  # type: ignore[misc]  # a default as a closure
        assert looked_through(table) == []
    assert [len(rows) for rows in answers] == [0, count]


@pytest.mark.parametrize("terms", [{}, {"until": "window", "span": 60}], ids=["until", "window"])
def test_new_keys_and_windows_that_are_over(table: Table, terms: dict[str, Any]) -> None:
    keys = [f"new:{uuid.uuid4()}" for _ in range(200)]
    if terms:
        (over,) = table.run("select array(select key from jobwell.dedup where until <= now() limit 50)")[0]
        keys += over
    answers: list[Any] = []
    check(
        table,
        lambda: answers.append(table.run("select * from jobwell.dedup_add(%s::json, null, 2048)", [asked(keys, **terms)])),
        bound=1500,
    )
    assert sorted(row[0] for row in answers[0]) == sorted(keys)
    assert looked_through(table) == []

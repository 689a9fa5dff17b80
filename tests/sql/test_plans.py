"""Case D5: the statements of the hot path read what they need and no more, whatever the size of the table and whatever its
statistics say. At 100,000 ready jobs in the normal run, at a million with `-m long`.
"""

import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql

from jobwell import settings
from jobwell.store.database import Database
from jobwell.store.jobs import FIRST_GATE
from jobwell.store.migrations import migrate
from jobwell.store.statements import within
from tests.waiting import until

QUEUES, TENANTS, RANKS, GATES = 200, 2000, 5, 4
WORKER = uuid.UUID(int=1)
ALL_QUEUES = [f"q{n}" for n in range(QUEUES)]
ALL_GATES = list(range(1, GATES + 1))
SMALL, MIDDLE, LARGE = 1_000, 100_000, 1_000_000
FILL = """
insert into jobwell.jobs (id, queue, rank, gate, task, tenant, state, run_at, ready_at, deadline, args)
select gen_random_uuid(), 'q' || n % {queues}, 50 * (n / {queues} % {ranks}), 1 + n / 7 % {gates}, 'task' || n / 7 % {gates},
       't' || n / 3 % {tenants}, 'ready', t, t, t + interval '1 day', '{{"n": 1}}'
  from generate_series(1, {ready}) n, lateral (select now() - interval '1 hour' + n * interval '1 millisecond' as t) at;
insert into jobwell.jobs (id, queue, rank, gate, task, tenant, state, run_at, ready_at, args)
select gen_random_uuid(), case when n % 3 = 0 then 'parked' else 'q' || n % {queues} end, 100, 1, 'task', 't' || n % {tenants}, case when n % 2 = 0 then 'scheduled' else 'retrying' end,
       now() + n * interval '1 second', null, '{{"n": 1}}'
  from generate_series(1, {waiting}) n;
"""
# What the planner may believe. "stale" is the trap: it takes a large table for an empty one.
STATISTICS = {
    "never analysed": "",
    "analysed": "analyze jobwell.jobs; analyze jobwell.finished; analyze jobwell.attempts",
    "wiped": "delete from pg_statistic where starelid = 'jobwell.jobs'::regclass",
    "stale": "update pg_class set reltuples = 0, relpages = 0 where oid = 'jobwell.jobs'::regclass or oid in"
    " (select indexrelid from pg_index where indrelid = 'jobwell.jobs'::regclass)",
}


@dataclass
class Table:
    """A filled schema and what its statements cost.

    Attributes:
        plans: of all statements since the last `forget`, nested ones included; empty where auto_explain cannot be loaded.
    """

    conn: "Connection[Any]"
    schema: str
    rows: int
    plans: list[dict[str, Any]] = field(default_factory=list)

    def run(self, text: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        return self.conn.execute(within(text, self.schema), parameters).fetchall()  # type: ignore[call-overload, no-any-return]

    def do(self, text: str) -> None:
        self.conn.execute(within(text, self.schema))  # type: ignore[call-overload]

    def cost(self, text: str, parameters: Any = None) -> int:
        """Buffers touched by a statement and all that it calls."""
        ((found,),) = self.run(f"explain (analyze, buffers, timing off, format json) {text}", parameters)
        return int(found[0]["Plan"]["Shared Hit Blocks"] + found[0]["Plan"]["Shared Read Blocks"])

    def watch(self) -> None:
        """Collect plans from now on, where the server can."""
        try:
            self.conn.execute("load 'auto_explain'")
        except psycopg.Error:
            return
        for name, value in {
            "auto_explain.log_min_duration": 0, "auto_explain.log_nested_statements": "on", "auto_explain.log_analyze": "on",
            "auto_explain.log_timing": "off", "auto_explain.log_format": "json", "client_min_messages": "log",
        }.items():  # fmt: skip
            self.conn.execute("select set_config(%s, %s, false)", [name, str(value)])
        self.conn.add_notice_handler(self._heard)

    def _heard(self, diagnostic: Any) -> None:
        text = diagnostic.message_primary or ""
        if "plan:" in text:
            self.plans.append(json.loads(text.split("plan:", 1)[1]))

    def counters(self) -> tuple[int, int]:
        """Sequential scans of the jobs so far, and rows read by them."""
        self.conn.execute("select pg_stat_force_next_flush()")
        ((scans, rows),) = self.run(
            "select seq_scan, seq_tup_read from pg_stat_all_tables where relid = 'jobwell.jobs'::regclass"
        )
        return scans, rows


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def wrong(plans: list[dict[str, Any]], bound: int) -> list[str]:
    """What no statement of the hot path may do: look through the jobs, or sort or read more rows than its batch explains."""
    found = []
    for plan in plans:
        for node in nodes(plan["Plan"]):
            kind, rows = node["Node Type"], node.get("Actual Rows", 0) * node.get("Actual Loops", 1)
            read = rows + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            on_jobs = node.get("Relation Name") == "jobs"
            if on_jobs and kind == "Seq Scan":
                found.append(f"{kind} of jobs, {read} rows: {plan['Query Text'][:80]!r}")
            elif on_jobs and read > bound:
                found.append(f"{kind} by {node.get('Index Name')} read {read} rows: {plan['Query Text'][:80]!r}")
            elif "Sort" in kind and rows > bound:
                found.append(f"{kind} of {rows} rows: {plan['Query Text'][:80]!r}")
    return found


def fill(ready: int) -> str:
    return FILL.format(queues=QUEUES, tenants=TENANTS, ranks=RANKS, gates=GATES, ready=ready, waiting=ready * 3 // 10)


# --- the tables ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def make(database_url: str) -> Iterator[Callable[[int], Table]]:
    """Tables by size, filled once."""
    made: dict[int, Table] = {}

    def get(ready: int) -> Table:
        if ready not in made:
            schema = f"jwplans_{os.getpid()}_{ready}"
            migrate(Database(settings.load({"database_url": database_url, "schema": schema})))
            made[ready] = Table(psycopg.connect(database_url, autocommit=True), schema, ready)
            made[ready].conn.prepare_threshold = None
            made[ready].do("alter table jobwell.jobs set (autovacuum_enabled = false)")
            made[ready].do(fill(ready))
            made[ready].do(
                f"insert into jobwell.workers (id, lease_until, pid, host, name, version, slots, queues) values ('{WORKER}', now() + interval '1 day', 1, 'h', 'h', '0', 1, '{{}}')"
            )
            made[ready].watch()
        return made[ready]

    yield get
    for table in made.values():
        table.conn.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(table.schema)))
        table.conn.close()


@pytest.fixture(scope="module", params=[MIDDLE, pytest.param(LARGE, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def large(request: pytest.FixtureRequest, make: Callable[[int], Table]) -> Table:
    return make(request.param)


@pytest.fixture
def small(make: Callable[[int], Table]) -> Table:
    """A thousand ready jobs."""
    table = make(SMALL)
    table.do("truncate jobwell.jobs")
    table.do(fill(SMALL))
    return table


@pytest.fixture(scope="module", params=STATISTICS)
def table(request: pytest.FixtureRequest, large: Table) -> Table:
    """The large table as the planner sees it."""
    large.do(STATISTICS[request.param])
    return large


CLAIM = "select id from jobwell.claim(%s, %s, %s, %s, %s, 0, %s, %s, 8388608)"


def claim(
    table: Table, want: int = 100, queues: list[str] = ALL_QUEUES, gates: list[int] = ALL_GATES
) -> tuple[list[uuid.UUID], uuid.UUID]:
    claim_id = uuid.uuid4()
    rows = table.run(CLAIM, [WORKER, claim_id, queues, gates, want, FIRST_GATE, ""])
    return [row[0] for row in rows], claim_id


def given(ids: list[uuid.UUID], claim_id: uuid.UUID, **more: Any) -> str:
    usual = {"reason": "exhausted", "counts": True, "delay": 60.0, "outcome": "released", "fingerprint": "f"}
    return json.dumps([{"id": str(job), "claim_id": str(claim_id)} | usual | more for job in ids])


# --- plans ---------------------------------------------------------------------------------------------------------------


def check(table: Table, call: Callable[[], object], bound: int) -> None:
    """Run it; no statement inside may look through the jobs."""
    before = table.counters()
    table.plans.clear()
    call()
    assert table.counters() == before, "the jobs were looked through"
    assert wrong(table.plans, bound) == []


def test_plans_are_seen(large: Table) -> None:
    """The check itself can fail."""
    large.plans.clear()
    before = large.counters()
    large.run("select count(*) from (select * from jobwell.jobs order by args::text limit 5) j")
    assert large.counters()[0] > before[0]
    if large.plans:
        assert any("Seq Scan" in line for line in wrong(large.plans, 1000))


@pytest.mark.parametrize("queues", [1, QUEUES])
@pytest.mark.parametrize("want", [1, 100])
def test_claim(table: Table, queues: int, want: int) -> None:
    taken: list[uuid.UUID] = []
    check(table, lambda: taken.extend(claim(table, want, ALL_QUEUES[:queues])[0]), bound=20 * (want + queues) + 500)
    assert len(taken) == want


def test_claim_behind_closed_gates(table: Table) -> None:
    """Three gates of four closed, at every queue and rank."""
    check(table, lambda: claim(table, 100, gates=[3]), bound=20 * (100 + QUEUES) + 500)


def test_a_claim_that_finds_nothing(table: Table) -> None:
    check(table, lambda: claim(table, 100, gates=[99]), bound=20 * RANKS * GATES * QUEUES)
    check(table, lambda: claim(table, 100, queues=["no such"]), bound=1000)


def test_finish(table: Table) -> None:
    ids, claim_id = claim(table)
    call = "select * from jobwell.finish(%s, %s, %s, %s)"
    assert len(ids) == 100
    check(table, lambda: table.run(call, [ids, [claim_id] * 100, [None] * 100, [None] * 100]), bound=300)
    assert table.run("select count(*) from jobwell.jobs where id = any(%s)", [ids]) == [(0,)]


@pytest.mark.parametrize("verb", ["fail", "retry", "postpone"])
def test_settle(table: Table, verb: str) -> None:
    ids, claim_id = claim(table)
    check(table, lambda: table.run(f"select * from jobwell.{verb}(%s::json)", [given(ids, claim_id)]), bound=300)
    assert table.run("select count(*) from jobwell.jobs where id = any(%s) and state = 'running'", [ids]) == [(0,)]


def test_flip_due(table: Table) -> None:
    table.do(
        "update jobwell.jobs set run_at = now() - interval '1 minute' where id = any(array(select id from jobwell.jobs where state in ('scheduled', 'retrying') order by run_at limit 500))"
    )
    check(table, lambda: table.run("select * from jobwell.flip_due(400)"), bound=2000)
    check(table, lambda: table.run("select * from jobwell.flip_due(1000)"), bound=3000)
    check(table, lambda: table.run("select * from jobwell.flip_due(1000)"), bound=3000)


def test_rescue(table: Table) -> None:
    claim(table, 150)
    table.do("update jobwell.workers set state = 'dead'")
    taken: list[Any] = []
    check(table, lambda: taken.extend(table.run("select jobwell.rescue(200, 10)")), bound=1000)
    assert taken[0][0] >= 150
    check(table, lambda: table.run("select jobwell.rescue(200, 10)"), bound=1000)
    table.do("update jobwell.workers set state = 'live'")


def test_insert_and_wake(table: Table) -> None:
    check(
        table,
        lambda: table.do(
            "insert into jobwell.jobs (id, gate, task) values (gen_random_uuid(), 1, 't'); select jobwell.wake(array['default'])"
        ),
        bound=10,
    )


def test_what_a_worker_asks_about_itself(table: Table) -> None:
    statements = Database(settings.load({"database_url": "postgresql://x", "schema": table.schema})).statements
    claim(table, 10)
    check(table, lambda: table.run(statements["jobs.held_by"], {"worker": WORKER}), bound=1000)
    check(table, lambda: table.run(statements["jobs.gates"], {"queues": ALL_QUEUES}), bound=3 * RANKS * GATES * QUEUES)


# --- cost against size ---------------------------------------------------------------------------------------------------


def claim_cost(table: Table, queues: list[str], want: int = 100, times: int = 10) -> float:
    """Buffers touched by one claim, in the middle. What other tests hold open on this server keeps dead entries in the way."""
    others = """select count(*) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'
                 and backend_xmin is not null and xact_start < now() - interval '1 second'"""
    until(lambda: table.run(others)[0][0] == 0, timeout=60, what="no other transaction is older than a second")
    table.do("vacuum jobwell.jobs")
    costs = [table.cost(CLAIM, [WORKER, uuid.uuid4(), queues, ALL_GATES, want, FIRST_GATE, ""]) for _ in range(times)]
    return sorted(costs)[times // 2]


def test_the_cost_of_a_claim_does_not_grow_with_the_table(large: Table, small: Table) -> None:
    """A thousand ready jobs against all of them, for a worker of all queues. An index of more rows is deeper by a page or two
    for each descent, and that is all.
    """
    costs = []
    for each in (small, large):
        each.do(STATISTICS["analysed"])
        costs.append(claim_cost(each, ALL_QUEUES, 50))
    assert costs[1] < 2.5 * costs[0] + 100, costs


@pytest.mark.parametrize(("queues", "want", "bound"), [(1, 100, 80), (5, 100, 120), (QUEUES, 100, 200), (QUEUES, 1, 8000)])
def test_a_claim_reads_few_pages_for_a_job(large: Table, queues: int, want: int, bound: int) -> None:
    """Whatever number of lanes stands in each queue; that of queues counts, since each is looked at once for every claim."""
    assert claim_cost(large, ALL_QUEUES[1 : queues + 1], want, times=3) <= bound * want


def test_the_cost_of_a_finish_does_not_grow_with_the_table(large: Table, small: Table) -> None:
    costs = []
    for each in (small, large):
        ids, claim_id = claim(each, 50)
        assert len(ids) == 50
        costs.append(each.cost("select * from jobwell.finish(%s, %s, %s, %s)", [ids, [claim_id] * 50, [None] * 50, [None] * 50]))
    assert costs[1] < 2.5 * costs[0] + 100, costs


def test_what_waits_costs_the_claim_nothing(large: Table) -> None:
    """A hundred thousand parked jobs and retries are not in the way of those that are ready, in the same queue, rank and lane."""
    large.do(
        "insert into jobwell.jobs (id, queue, gate, task, tenant) select gen_random_uuid(), 'parked', 1, 'task', 't1' from generate_series(1, 20)"
    )
    claim_cost(large, ["parked"], want=10, times=1)  # a session's first claim reads the catalogs
    assert claim_cost(large, ["parked"], want=10, times=1) < 800


@pytest.mark.parametrize("cap", [50, 1_000_000])
def test_the_length_of_a_queue_is_counted_in_its_index_and_no_further_than_asked(table: Table, cap: int) -> None:
    """One queue of many, beside parked jobs. The figure is thrown away, so that it is counted."""
    table.do("truncate jobwell.queue_lengths")
    ((ready,),) = table.run("select count(*) from jobwell.jobs where state = 'ready' and queue = 'q7'")
    found: list[tuple[Any, ...]] = []
    check(
        table, lambda: found.extend(table.run("select length from jobwell.queue_length('q7', %s)", [cap])), bound=min(cap, ready)
    )
    assert found == [(min(cap, ready),)]

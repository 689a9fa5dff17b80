"""Equal jobs in bulk: within one call, beside what is there, mixed with jobs without keys, all or nothing."""

from typing import Any

import pytest

from jobwell import App, Dedup, Duplicate
from jobwell.actions import dedup as actions
from jobwell.testing import Schema
from tests.client.helpers import BOTH
from tests.store.helpers import Store

TERMS: dict[str, dict[str, Any]] = {"done": {"until": "done"}, "started": {"until": "started"}, "window": {"window": "1h"}}
each_terms = pytest.mark.parametrize("terms", list(TERMS))
each_size = pytest.mark.parametrize("size", [30, 900, 9000], ids=["by statements", "by one COPY", "by several"])


def task_of(app: App, terms: str = "done", **more: Any) -> Any:
    @app.task(name="notify", dedup=Dedup("n", **TERMS[terms], **more))
    def notify(n: int, text: str = "") -> None: ...

    return notify


def by_number(store: Store) -> dict[int, Any]:
    return dict(store.ask("select (coalesce(j.args, p.args) ->> 'n')::int, j.id from jobs j left join payloads p using (id)"))


@pytest.mark.parametrize("many", BOTH)
@each_terms
@each_size
def test_the_first_of_equal_ones_wins_and_what_is_there_stays(app: App, store: Store, many: Any, terms: str, size: int) -> None:
    notify = task_of(app, terms)
    there = [notify.enqueue(n) for n in (3, 4)]
    numbers = [n // 2 if n % 7 else 3 for n in range(size)]
    jobs = [notify.job(n, text="x" * (3000 if n % 11 == 0 else 1)) for n in numbers]
    found = many(app, jobs)
    stored = by_number(store)
    assert len(stored) == store.count() == len(set(numbers))
    assert list(found) == [stored[n] for n in numbers]
    assert [stored[3], stored[4]] == [job.id for job in there]
    assert found.created == len(set(numbers)) - 2
    assert found.suppressed == [place for place, job in enumerate(jobs) if found[place] != job.id]
    assert store.ask("select reason, count(*) from dedup_hits group by 1") == [("skipped", size - found.created)]
    large = store.one("select count(*) from jobs where args is null")
    assert store.count("payloads") == large > 0
    assert not store.one("select exists (select from payloads p where not exists (select from jobs j where j.id = p.id))")
    if terms == "window":
        assert store.one("select count(*), count(distinct job_id) from dedup") == (len(stored), len(stored))


@pytest.mark.parametrize("many", BOTH)
@each_size
def test_the_last_of_equal_ones_wins_where_it_replaces(app: App, store: Store, many: Any, size: int) -> None:
    notify = task_of(app, "started", on_conflict="replace")
    there = notify.enqueue(3, "old")
    numbers = [n // 2 for n in range(size)]
    found = many(app, [notify.job(n, f"{place}") for place, n in enumerate(numbers)])
    stored = by_number(store)
    assert list(found) == [stored[n] for n in numbers]
    assert stored[3] == there.id
    assert dict(store.ask("select (args ->> 'n')::int, (args ->> 'text')::int from jobs")) == {n: 2 * n + 1 for n in set(numbers)}
    assert store.ask("select reason, count(*) from dedup_hits group by 1") == [("replaced", size - found.created)]


@pytest.mark.parametrize("many", BOTH)
@each_size
def test_one_that_is_refused_undoes_the_call_and_is_counted(app: App, store: Store, many: Any, size: int) -> None:
    notify = task_of(app, on_conflict="reject")
    there = notify.enqueue(size - 5)
    with pytest.raises(Duplicate) as told:
        many(app, [notify.job(n) for n in range(size)])
    assert told.value.job_id == there.id
    assert store.count() == 1
    assert store.ask("select reason, holder from dedup_hits") == [("rejected", there.id)]
    with pytest.raises(Duplicate, match="earlier in the same call"):
        many(app, [notify.job(n % (size - 10) + size) for n in range(size)])
    assert store.count() == 1


@pytest.mark.parametrize("many", BOTH)
@each_size
def test_jobs_with_and_without_keys_and_on_other_terms_stand_in_one_call(app: App, store: Store, many: Any, size: int) -> None:
    notify = task_of(app)

    @app.task(name="plain")
    def plain(n: int) -> None: ...

    @app.task(name="windowed", dedup=Dedup("n", window="1h"))
    def windowed(n: int) -> None: ...

    kinds = [plain, notify, windowed, notify, plain, notify.using(dedup=False), notify.using(dedup_key="one")]
    jobs = [kinds[place % 7].job(place % 50) for place in range(size)]
    found = many(app, jobs)
    assert len(found) == size
    assert {row[0] for row in store.ask("select id from jobs")} == set(found)
    free = [place for place, job in enumerate(jobs) if job.dedup is None]
    assert [found[place] for place in free] == [jobs[place].id for place in free]
    keys = {job.dedup_key for job in jobs if job.dedup is not None}
    assert store.count() == len(free) + len(keys)
    assert store.count("dedup_hits") == size - store.count()
    assert store.count("jobs", "dedup_key = 'notify=one'") == 1


def test_a_stream_that_breaks_leaves_nothing(app: App, store: Store) -> None:
    notify = task_of(app)

    def jobs() -> Any:
        for n in range(5000):
            if n == 4500:
                raise LookupError(n)
            yield notify.job(n)

    with pytest.raises(LookupError):
        app.enqueue_many(jobs())
    assert (store.count(), store.count("dedup_hits")) == (0, 0)
    assert app.enqueue_many(notify.job(n) for n in range(5000)).created == 5000


def test_a_spread_places_each_once(app: App, store: Store) -> None:
    notify = task_of(app)
    notify.enqueue(77)
    app.enqueue_many([notify.job(n) for n in range(1000)], spread="1000s")
    assert store.one("select count(*) from jobs where dedup_key is not null") == 1000
    late = store.one(
        "select max(abs(extract(epoch from run_at - (select min(run_at) from jobs where state = 'scheduled')) - (args ->> 'n')::int + 1))"
        " from jobs where state = 'scheduled'"
    )
    assert late <= 1.001


def test_suppressed_jobs_do_not_fill_a_queue(store_settings: dict[str, Any], schema: str, store: Store) -> None:
    from jobwell import Queue

    app = App(**store_settings, schema=schema, queues=Queue("default", hard=10))
    notify = task_of(app)
    try:
        for _ in range(30):
            notify.enqueue(1)
        assert app.enqueue_many([notify.job(n % 3) for n in range(9)]).created == 2
        assert app.pressure("default").length == 3
        for _ in range(3):
            app.enqueue_many([notify.job(n % 3) for n in range(7)])
    finally:
        app.close()
    assert store.count() == 3


# --- counts and upkeep ---------------------------------------------------------------------------------------------------


def test_counts_stay_exact_while_single_ones_are_forgotten(app: App, store: Store, kit: Schema) -> None:
    """Windows end and suppressed calls are folded by the retention, in small commits; the counts stay."""
    from jobwell.actions.prune import Prune

    notify, windowed = task_of(app), task_of_window(app)
    app.enqueue_many([notify.job(n % 10) for n in range(300)])
    app.enqueue_many([windowed.job(n % 10) for n in range(300)])
    counted = actions.suppressed(app.database)[0]
    assert [(row["task"], row["reason"], row["count"]) for row in counted] == [
        ("notify", "skipped", 290),
        ("windowed", "skipped", 290),
    ]
    kit.clock.travel("2h")
    try:
        notify.enqueue(1)
        pruned = Prune(app.database, keep=3600, budget=60, by="test", rest=lambda _: None).run()
        assert (pruned.windows, pruned.hits) == (10, 580)
        counted, last = actions.suppressed(app.database)
        assert [(row["task"], row["count"]) for row in counted] == [("notify", 291), ("windowed", 290)]
        assert [row["task"] for row in last] == ["notify"]
    finally:
        kit.clock.reset()


def task_of_window(app: App) -> Any:
    @app.task(name="windowed", dedup=Dedup("n", window="1h"))
    def windowed(n: int) -> None: ...

    return windowed

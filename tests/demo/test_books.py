"""The books must not flatter: each thing that can go wrong is told."""

import os
import shutil
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from jobwell import StoreUnavailable, settings
from jobwell.demo.books import Books, Story, balance
from jobwell.demo.mailbox import Tally
from jobwell.demo.people import Person, corrections, refusal
from jobwell.demo.processes import DemoError
from jobwell.demo.world import World, demo_settings, world


def _deliver(tally: Tally, person: Person, mailbox: str | None = None) -> None:
    tally.add(
        {"what": "delivered", "mailbox": mailbox or person.email, "employee": str(person.employee_id), "event": "2026-01-28"}
    )


def _do_all(place: World) -> Tally:
    """Everything as it should be, without any worker."""
    hr, store = place.case.company, place.settings.schema
    place.conn.execute(
        f"update {hr}.employees e set department = new_department, position = new_position, manager_id = new_manager_id,"
        f" event_version = t.event_version from {hr}.transfers t where t.employee_id = e.employee_id"
    )
    place.ask("report", event="2026-01-28")
    place.conn.execute(
        f"insert into {store}.finished (id, enqueued_at, run_at, rank, attempt, failures, bytes, queue, task, state, tenant)"
        " values (gen_random_uuid(), now(), now(), 100, 1, 0, 0, 'reports', 'hr.transfer.recalculate', 'succeeded', '')"
    )
    tally = Tally()
    right = corrections()
    for person in place.people:
        _deliver(tally, person, right.get(person.employee_id))
    return tally


def _story(place: World, **more: Any) -> Story:
    """What the run tells where all is well."""
    failed = {person.employee_id: "invalid_address" for person in place.people if refusal(person.email)}
    corrected = {employee: corrections()[employee] for employee in failed}
    told: dict[str, Any] = {"first": "completed_with_errors", "last": "completed", "failed": failed, "corrected": corrected}
    return Story(**(told | {"retried": len(failed)} | more))


def _hold(place: World, code: str, task: str) -> None:
    place.conn.execute(
        f"insert into {place.settings.schema}.quarantine (id, enqueued_at, run_at, gate, rank, attempt, failures, crashes,"
        " losses, postponements, bytes, queue, task, tenant, lock_key, reason, code, fingerprint, args)"
        " values (gen_random_uuid(), now(), now(), 1, 100, 1, 1, 0, 0, 0, 0, 'notifications', %s, '', '', 'rejected', %s, '', '{}')",
        [task, code],
    )


def _balance(place: World, tally: Tally, **more: Any) -> Books:
    return balance(place, tally, _story(place, **more), seconds=1.0, overtaken=0)


def test_all_well(place: World) -> None:
    books = _balance(place, _do_all(place))
    assert books.problems == []
    assert books.as_json() == {
        "employees": 300, "updated": 300, "mailed": 300, "failed": 3, "retried": 3, "left": 0, "quarantined": 0, "repeated": 0,
        "duplicates": 0, "lost": 0, "seconds": 1.0, "balanced": True, "urgent_worst_wait_ms": None,
    }  # fmt: skip


def test_nothing_done_is_not_balanced(place: World) -> None:
    books = _balance(place, Tally())
    assert (books.updated, books.mailed, books.lost) == (0, 0, 300)
    assert not books.balanced


def test_one_lost_mail(place: World) -> None:
    tally = _do_all(place)
    del tally.mailboxes["5"]
    books = _balance(place, tally)
    assert (books.lost, books.balanced) == (1, False)


def test_one_second_delivery(place: World) -> None:
    tally = _do_all(place)
    _deliver(tally, place.people[4])
    books = _balance(place, tally)
    assert (books.duplicates, books.lost, books.balanced) == (1, 0, False)


def test_a_mail_in_a_wrong_mailbox(place: World) -> None:
    tally = _do_all(place)
    tally.mailboxes["5"] = set()
    _deliver(tally, place.people[4], place.people[5].email)
    books = _balance(place, tally)
    assert (books.lost, books.balanced) == (1, False)


def test_one_row_that_was_not_changed(place: World) -> None:
    tally = _do_all(place)
    place.conn.execute(f"update {place.case.company}.employees set manager_id = null where employee_id = 77")
    books = _balance(place, tally)
    assert (books.updated, books.balanced) == (299, False)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"failed": {5: "invalid_address"}}, "those who failed are not exactly the people whose address is refused"),
        ({"left": {5: "invalid_address"}}, "1 people are mailed and failed too"),
        ({"retried": 2}, "2 items were tried again, of 3 that had failed"),
        ({"first": "completed"}, "the run ended as completed at first"),
        ({"last": "cancelled"}, "the run ended as cancelled after the retry"),
        ({"exact": False}, "the counters of the run are not what a recount of its items says"),
    ],
)
def test_a_run_that_tells_something_else(place: World, more: dict[str, Any], words: str) -> None:
    assert words in _balance(place, _do_all(place), **more).problems


def test_notices_that_failed_for_another_reason(place: World) -> None:
    tally = _do_all(place)
    failed = dict.fromkeys(_story(place).failed, "exhausted")
    assert _balance(place, tally, failed=failed).problems == ["notices failed for another reason: {'exhausted': 3}"]


def test_a_job_in_the_quarantine(place: World) -> None:
    tally = _do_all(place)
    _hold(place, "exhausted", "hr.transfer.notify")
    assert _balance(place, tally).problems == ["1 jobs are in the quarantine"]


def test_an_urgent_job_that_did_not_run(place: World) -> None:
    tally = _do_all(place)
    place.conn.execute(
        f"insert into {place.case.company}.urgent_notices values (1, now(), now() + interval '70 ms'), (2, now(), null)"
    )
    books = _balance(place, tally)
    assert books.urgent_worst_wait_ms == pytest.approx(70)
    assert books.problems == ["1 urgent jobs did not run"]


def test_a_report_of_yesterday(place: World) -> None:
    tally = _do_all(place)
    place.conn.execute(f"update {place.case.company}.department_report set people = people + 1 where department = 'IT'")
    assert _balance(place, tally).problems == ["the report is not that of the file"]


def test_a_schema_that_no_demo_has_made_is_left_alone(database_url: str) -> None:
    given = demo_settings(settings.load({"database_url": database_url, "schema": f"jwtest_{os.getpid()}_own"}))
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(f"create schema {given.schema}")
        try:
            with pytest.raises(DemoError, match="no demo has made"), world(given, 1, keep=False):
                pass
            assert conn.execute("select to_regnamespace(%s)::text", [given.schema]).fetchone() == (given.schema,)
        finally:
            conn.execute(f"drop schema {given.schema}")


def test_a_second_demo_is_refused_and_the_world_is_gone_afterwards(database_url: str) -> None:
    given = demo_settings(settings.load({"database_url": database_url, "schema": f"jwtest_{os.getpid()}_two"}))
    with world(given, 1, keep=False) as place:
        with pytest.raises(DemoError, match="another demo is running"), world(given, 1, keep=False):
            pass
        assert len(place.ask("employees")) == 1
    assert not place.folder.exists()
    with psycopg.connect(database_url) as conn:
        found = conn.execute("select nspname from pg_namespace where nspname like %s", [f"{given.schema}%"]).fetchall()
    assert found == []


def test_what_was_kept_is_made_anew_unless_a_worker_still_lives_there(database_url: str) -> None:
    given = demo_settings(settings.load({"database_url": database_url, "schema": f"jwtest_{os.getpid()}_old"}))
    with world(given, 2, keep=True) as kept:
        kept.conn.execute(
            f"insert into {given.schema}.workers (id, lease_until, pid, host, name, version, slots, queues)"
            " values (gen_random_uuid(), now() + interval '1 minute', 4711, 'attic', 'w', '0', 1, array['bulk'])"
        )
    with pytest.raises(DemoError, match="process 4711 on attic"), world(given, 1, keep=False):
        pass
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(f"update {given.schema}.workers set state = 'dead'")
    with world(given, 1, keep=False) as anew:
        assert len(anew.ask("employees")) == 1
    shutil.rmtree(kept.folder)


def _cut(conn: "Connection[Any]", place: World) -> None:
    conn.execute("select pg_terminate_backend(%s)", [place.conn.info.backend_pid])
    place.ask("employees")


def test_the_world_is_removed_although_its_connection_is_lost(database_url: str) -> None:
    given = demo_settings(settings.load({"database_url": database_url, "schema": f"jwtest_{os.getpid()}_cut"}))
    with psycopg.connect(database_url, autocommit=True) as conn:
        with pytest.raises(StoreUnavailable), world(given, 1, keep=False) as place:
            _cut(conn, place)
        found = conn.execute("select nspname from pg_namespace where nspname like %s", [f"{given.schema}%"]).fetchall()
    assert found == []

"""The database goes away under running jobs: cases A11, A12 and E4."""

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobwell import App, StoreUnavailable, embedded, settings
from jobwell.store.database import Database
from jobwell.store.migrations import migrate
from tests.crash.conftest import Fleet
from tests.waiting import pause, until

SCHEMA = "jwoutage"


@pytest.fixture
def own() -> Iterator[embedded.Server]:
    """A server of one's own, to be stopped at will; in a folder that its account can reach."""
    server = embedded.start(Path(tempfile.gettempdir(), f"jobwell-outage-{os.getpid()}"))
    yield server
    embedded.stop(server.folder)
    embedded.release(server.folder)
    shutil.rmtree(server.folder, ignore_errors=True)


class Place:
    """Tables and a fleet on a server that goes away.

    Args:
        server: one's own.
        log: of the fleet.
    """

    def __init__(self, server: embedded.Server, log: Path) -> None:
        self.server = server
        migrate(Database(settings.load({"database_url": server.url, "schema": SCHEMA})))
        self.app = App(server.url, schema=SCHEMA)

        @self.app.task(name="quiet")
        async def nap(seconds: float, job: str) -> str:
            return job

        self.nap = nap
        conn = self.connect()
        conn.execute(
            f"create table {SCHEMA}.marks (job text, attempt integer, pid integer, what text,"
            " at timestamptz default clock_timestamp())"
        )
        self.fleet = Fleet(server.url, SCHEMA, conn, log)

    def connect(self) -> "psycopg.Connection[Any]":
        """The test's own connection."""
        return psycopg.connect(self.server.url, autocommit=True, options=f"-c search_path={SCHEMA}")

    def away(self) -> None:
        """The server stops."""
        self.fleet.conn.close()
        embedded.stop(self.server.folder)

    def back(self) -> None:
        """It is there again."""
        embedded.start(self.server.folder)
        self.fleet.conn = self.connect()

    def end(self) -> None:
        """Nothing is left."""
        self.fleet.end()
        self.app.close()
        self.fleet.conn.close()
        embedded.release(self.server.folder)


@pytest.fixture
def place(own: embedded.Server, tmp_path: Path) -> Iterator[Place]:
    """With nobody at work yet."""
    made = Place(own, tmp_path / "log")
    yield made
    made.end()


def outage(place: Place, *, job_seconds: float, down_seconds: float, lease: str) -> None:
    fleet = place.fleet
    fleet.several(2, lease=lease)
    place.nap.enqueue(job_seconds, "a")
    until(lambda: fleet.marks("start") == 1)
    place.away()
    pause(down_seconds)
    place.back()
    until(lambda: fleet.finished() == 1, timeout=job_seconds + 40, what="the job is stored as done")
    assert fleet.marks("start") == 1, "it ran once: the row lease is still its own"
    assert fleet.rows("select attempt, state from finished") == [(1, "succeeded")]
    assert fleet.one("select count(*) from attempts") == 0
    place.nap.enqueue(0.0, "b")  # and both sides go on
    until(lambda: fleet.finished() == 2)


def acknowledgements(place: Place, *, down: float, lease: float, jobs: int = 20) -> None:
    """Jobs that end while the database is away: one slot for each, so that a slot that is free too soon would be seen."""
    fleet = place.fleet
    fleet.start(slots=jobs, lease=f"{lease}s")
    length = min(down, lease) / 2
    place.app.enqueue_many([place.nap.job(length, f"ack {n}") for n in range(jobs)])
    place.nap.enqueue(0.0, "behind")
    until(lambda: fleet.marks("start") >= jobs)
    place.away()
    pause(down)
    place.back()
    until(lambda: fleet.finished() == jobs + 1, timeout=60 + 3 * lease, what="all are stored as done")
    runs = dict(fleet.rows("select job, count(*) from marks where what = 'start' group by 1"))
    assert len(runs) == jobs + 1
    lost = dict(
        fleet.rows(
            """select f.args->>'job', array_agg(distinct a.outcome || ': ' || coalesce(a.note, ''))
               from attempts a join finished f on f.id = a.job_id where a.outcome <> 'succeeded' group by 1"""
        )
    )
    if down < lease:
        assert set(runs.values()) == {1}, "each ran once"
        assert lost == {}
    else:
        assert max(runs.values()) <= 2, "at most once more"
        assert all(run == 1 or job in lost for job, run in runs.items()), "and it is on record why"
        assert all("lost" in why for whys in lost.values() for why in whys), lost
    assert fleet.one("select count(*) from jobs") == 0
    assert fleet.one("select count(*) from quarantine") == 0


def test_results_of_jobs_that_end_during_an_outage_are_stored_after_it(place: Place) -> None:
    """Case A11: within the lease."""
    acknowledgements(place, down=2.5, lease=15.0)


def test_an_outage_longer_than_the_lease_costs_one_more_run_at_most(place: Place) -> None:
    """Case A11: beyond the lease."""
    acknowledgements(place, down=3.0, lease=2.0)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("down", "lease"), [(20.0, 60.0), (20.0, 10.0)])
def test_results_of_jobs_that_end_during_an_outage_at_full_length(place: Place, down: float, lease: float) -> None:
    """Case A11."""
    acknowledgements(place, down=down, lease=lease)


def minutes_away(place: Place, *, down: float, lease: float) -> None:
    """Case E4 with everybody: workers of both sorts, producers, and one that is cut off for longer than the others."""
    fleet, nap = place.fleet, place.nap
    patient = fleet.start(slots=1, lease=f"{min(3600.0, down * 10)}s")
    nap.enqueue(down / 2, "patient")
    until(lambda: fleet.marks("start") == 1)
    others = fleet.several(2, slots=20, lease=f"{lease}s")
    place.app.enqueue_many([nap.job(min(down / 2, 20.0), f"long {n}") for n in range(10)])
    until(lambda: fleet.marks("start") == 11)
    far = fleet.one("insert into workers (id, lease_until, pid, host, name, version, slots, queues)"
                    f" values (gen_random_uuid(), clock_timestamp() + '{lease} s', 1, 'far', 'far/1', '0', 1, '{{default}}')"
                    " returning id")  # fmt: skip
    held = nap.using(run_after="10h").enqueue(0.0, "far")
    fleet.conn.execute(
        "update jobs set state = 'running', attempt = 1, worker = %s, claim_id = gen_random_uuid(), started_at = now() where id = %s",
        [far, held.id],
    )
    made = produce_through(place, down)
    back = fleet.one("select pg_postmaster_start_time()")
    until(lambda: fleet.one("select count(*) from finished where state = 'succeeded'") == 12 + len(made), timeout=60 + 4 * lease)
    assert all(supervisor.poll() is None for supervisor in (patient, *others)), "nobody ended by itself"
    runs = dict(fleet.rows("select job, count(*) from marks where what = 'start' group by 1"))
    assert runs["patient"] == 1, "it kept its lease"
    assert max(runs.values()) <= 2
    assert set(made) <= set(runs), "what an enqueue has answered for is there"
    ((at, note),) = fleet.rows(f"select ended_at, note from attempts where job_id = '{held.id}' and outcome = 'lost'")
    assert (at - back).total_seconds() > lease * 0.9, "nobody is given up before a full lease"
    assert note == "its worker vanished"
    assert fleet.one("select count(*) from jobs") + fleet.one("select count(*) from quarantine") == 0
    assert fleet.log.read_text().count("\n") < 200 + 40 * down / 60


def produce_through(place: Place, down: float) -> list[str]:
    """Enqueue all the time, over an outage in the middle. Returns what was accepted."""
    made: list[str] = []
    stop = threading.Event()

    def produce() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with contextlib.suppress(StoreUnavailable):
                place.nap.enqueue(0.0, f"made {number}")
                made.append(f"made {number}")
            stop.wait(0.05)

    producer = threading.Thread(target=produce)
    producer.start()
    until(lambda: len(made) >= 10)
    place.away()
    pause(down)
    before = len(made)
    place.back()
    until(lambda: len(made) >= before + 10, timeout=30, what="the producer works again")
    stop.set()
    producer.join()
    return made


def test_an_outage_longer_than_every_lease_loses_nothing(place: Place) -> None:
    """Case E4."""
    minutes_away(place, down=4.0, lease=2.0)


@pytest.mark.long
@pytest.mark.timeout(700)
def test_an_outage_of_six_minutes_loses_nothing(place: Place) -> None:
    """Case E4."""
    minutes_away(place, down=360.0, lease=10.0)


def test_a_restart_of_the_database_during_a_job_repeats_nothing(place: Place) -> None:
    """Case A12."""
    outage(place, job_seconds=3.0, down_seconds=1.5, lease="8s")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_restart_of_the_database_during_a_job_repeats_nothing_at_full_length(place: Place) -> None:
    """Case A12."""
    outage(place, job_seconds=60.0, down_seconds=3.0, lease="10s")

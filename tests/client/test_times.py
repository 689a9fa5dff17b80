"""When a job is due (case F10): the moment that was meant, whatever the host's clock zone."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from psycopg import Connection

from jobwell import App, EnqueueError
from jobwell.client.task import Task
from tests.client.helpers import BOTH, count, one

NINE = datetime(2031, 6, 1, 9, 0, tzinfo=UTC)
AWARE: list[Any] = [
    NINE, NINE.astimezone(ZoneInfo("Asia/Almaty")), NINE.astimezone(ZoneInfo("America/St_Johns")), NINE.astimezone(ZoneInfo("Pacific/Apia")),
    NINE.astimezone(timezone(timedelta(hours=-3, minutes=-30))), "2031-06-01T09:00:00Z", "2031-06-01T14:00:00+05:00", "2031-06-01 06:30-02:30",
]  # fmt: skip


@pytest.mark.parametrize("value", AWARE, ids=str)
def test_an_aware_time_is_stored_as_its_moment(note: Task[..., None], conn: Connection[Any], value: Any) -> None:
    note.using(run_after=value).enqueue(1)
    state, run_at, ready_at, deadline = one(conn, "select state, run_at, ready_at, deadline from jobs")
    assert (state, run_at, ready_at, deadline) == ("scheduled", NINE, None, NINE + timedelta(hours=24))


@pytest.mark.parametrize("many", BOTH)
@pytest.mark.parametrize("amount", [3, 300])
def test_the_bulk_path_stores_the_same_moments(
    app: App, note: Task[..., None], conn: Connection[Any], many: Any, amount: int
) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    options = [AWARE[1], "10m", past, None]
    ids = many(app, (note.using(run_after=options[n % 4], deadline="1h").job(n) for n in range(amount)))
    rows = {row[0]: row[1:] for row in conn.execute("select id, state, run_at, enqueued_at, ready_at, deadline from jobs")}
    for n, job in enumerate(ids):
        state, run_at, enqueued_at, ready_at, deadline = rows[job]
        due = [NINE, enqueued_at + timedelta(minutes=10), past, enqueued_at][n % 4]
        assert (state, run_at) == ("scheduled" if n % 4 < 2 else "ready", due)
        assert (ready_at is not None) is (n % 4 >= 2)
        assert deadline == max(due, enqueued_at) + timedelta(hours=1)


@pytest.mark.parametrize(
    ("value", "seconds"), [("10m", 600), (600, 600), (0.5, 0.5), (timedelta(hours=2), 7200), ("1h30m", 5400)], ids=str
)
def test_a_duration_counts_from_now_on_the_clock_of_the_database(
    note: Task[..., None], conn: Connection[Any], value: Any, seconds: float
) -> None:
    note.using(run_after=value).enqueue(1)
    assert one(conn, "select state, extract(epoch from run_at - enqueued_at)::float8 from jobs") == ("scheduled", seconds)


@pytest.mark.parametrize("value", [0, "0s", datetime(2020, 1, 1, tzinfo=UTC), "2020-01-01T00:00:00Z"], ids=str)
def test_what_is_due_already_is_ready_at_once(note: Task[..., None], conn: Connection[Any], value: Any) -> None:
    note.using(run_after=value).enqueue(1)
    assert one(conn, "select state, ready_at is not null, deadline > now() from jobs") == ("ready", True, True)


@pytest.mark.parametrize("value", [datetime(2031, 6, 1, 9), "2031-06-01T09:00:00", "2031-06-01", "2031-06-01 09:00"], ids=str)
def test_a_time_without_a_zone_is_refused(note: Task[..., None], conn: Connection[Any], value: Any) -> None:
    with pytest.raises(
        EnqueueError, match="has no time zone, so it names a different moment on every host.*nothing was enqueued"
    ):
        note.using(run_after=value).enqueue(1)
    assert count(conn) == 0


SCRIPT = """
import json, sys
from datetime import UTC, datetime
from zoneinfo import ZoneInfo
from jobwell import App, EnqueueError

app = App(sys.argv[1], schema=sys.argv[2])

@app.task(name="note")
def note(n: int) -> None: ...

told = []
for naive in (datetime(2031, 6, 1, 9), datetime.now(), "2031-06-01T09:00:00", "2031-06-01"):
    try:
        note.using(run_after=naive).enqueue(0)
    except EnqueueError as error:
        told.append("has no time zone" in error.message)
for aware in (datetime(2031, 6, 1, 9, tzinfo=UTC), datetime(2031, 6, 1, 14, tzinfo=ZoneInfo("Asia/Almaty")), "2031-06-01T14:00:00+05:00",
              datetime(2031, 6, 1, 9, tzinfo=UTC).astimezone()):
    note.using(run_after=aware).enqueue(1)
app.enqueue_many(note.using(run_after=datetime(2031, 6, 1, 9, tzinfo=UTC)).job(1) for _ in range(250))
note.using(run_after="1h").enqueue(2)
app.close()
print(json.dumps(told))
"""


@pytest.mark.parametrize("zone", ["XYZ-13:45", "America/St_Johns", "Nowhere/Nothing"])
def test_the_zone_of_the_host_does_not_matter(database_url: str, schema: str, conn: Connection[Any], zone: str) -> None:
    environ = {**os.environ, "TZ": zone, "PGTZ": zone if "/" in zone and "Nowhere" not in zone else "UTC"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, database_url, schema], env=environ, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.stderr == ""
    assert json.loads(done.stdout) == [True] * 4
    assert conn.execute("select run_at, count(*) from jobs where args->>'n' = '1' group by 1").fetchall() == [(NINE, 254)]
    assert one(conn, "select run_at - enqueued_at from jobs where args->>'n' = '2'") == timedelta(hours=1)

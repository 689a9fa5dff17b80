"""Case F14: the clocks of hosts differ, and jump. Facts go by the database's clock, durations by a monotonic one."""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobwell import App
from tests.crash import app_under_test as tasks
from tests.crash.conftest import Fleet
from tests.crash.test_poison import put
from tests.waiting import pause, until

HERE = Path(__file__).parent


def at_a_wrong_time(folder: Path, name: str, seconds: float) -> tuple[dict[str, str], Callable[[float], None]]:
    """The environment of a process whose clock is off by so much, and what sets it to another time."""
    file = folder / f"clock of {name}"

    def put_to(seconds: float) -> None:
        other = file.with_suffix(".new")
        other.write_text(str(seconds), encoding="ascii")
        other.replace(file)

    put_to(seconds)
    return {"TESTS_CLOCK": str(file), "PYTHONPATH": f"{HERE / 'skewed'}:{':'.join(sys.path)}"}, put_to


def told(fleet: Fleet, *words: str) -> Any:
    command = [sys.executable, "-m", "jobwell", *words, "--database-url", fleet.url, "--schema", fleet.schema]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return json.loads(done.stdout) if words[-1] == "json" else done.stdout


def clocks(app: App, fleet: Fleet, folder: Path, *, lease: float, seconds: float) -> None:
    ahead, _ = at_a_wrong_time(folder, "ahead", 600)
    behind, _ = at_a_wrong_time(folder, "behind", -600)
    jumping, jump = at_a_wrong_time(folder, "jumping", 3600)
    for environ in (ahead, behind, jumping):
        fleet.launch(1, 5, environ, lease=f"{lease}s")
    until(lambda: fleet.live() == 3, timeout=60)
    shop = put(app, fleet)
    due = fleet.one(f"select now() + interval '{seconds / 2} seconds'")
    later = [tasks.patient.job(due.isoformat(), f"patient {n}") for n in range(6)]
    later += [tasks.nap.using(run_after=due).job(0.05, f"due {n}") for n in range(6)]
    shop.enqueue_many([*later, *(tasks.nap.job(seconds, f"long {n}") for n in range(8))])
    shop.enqueue_many(
        [tasks.hurried.job(3.0, "hurried"), *(tasks.nap.using(deadline="1m").job(0.05, f"short {n}") for n in range(20))]
    )
    places, end = itertools.cycle([3600, -3600, 0, 1800]), time.monotonic() + seconds
    while time.monotonic() < end:
        jump(next(places))
        pause(0.3)
    until(lambda: fleet.finished() == 41, timeout=seconds * 2 + 20)
    shop.close()
    early = f"select job from {fleet.schema}.marks where what = 'start' and (job like 'due%%' or job like 'patient%%') and at < '{due}'"
    assert fleet.rows(early) == [], "nothing starts before the database says so"
    assert fleet.one("select count(*) from attempts where outcome in ('lost', 'crashed', 'released')") == 0
    assert fleet.one("select count(*) from quarantine") == 0
    assert fleet.marks("start") == 41, "no lease has ended, and no time limit has come, because of a clock"
    late = fleet.rows(
        f"select extract(epoch from at - '{due}') from {fleet.schema}.marks where what = 'start' and job like 'patient%%'"
    )
    assert all(0 <= each < 5 for (each,) in late), late
    assert "the lease is lost" not in fleet.log.read_text()


def test_workers_at_other_times_start_nothing_early_and_lose_no_lease(app: App, fleet: Fleet, tmp_path: Path) -> None:
    clocks(app, fleet, tmp_path, lease=2.0, seconds=4.0)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_workers_at_other_times_at_full_length(app: App, fleet: Fleet, tmp_path: Path) -> None:
    clocks(app, fleet, tmp_path, lease=30.0, seconds=90.0)


def test_the_difference_is_shown_for_each_worker_and_pointed_out(fleet: Fleet, tmp_path: Path) -> None:
    for name, seconds in (("ahead", 600), ("right", 0.5)):
        environ, _ = at_a_wrong_time(tmp_path, name, seconds)
        fleet.launch(1, 10, environ)
    until(lambda: fleet.live() == 2, timeout=60)
    found = until(
        lambda: (rows := told(fleet, "workers", "list", "-o", "json")) and all(row["skew"] is not None for row in rows) and rows
    )
    skews = sorted(row["skew"] for row in found)
    assert all(abs(skew - true) < 0.4 for skew, true in zip(skews, (0.5, 600), strict=True)), skews
    assert all(0 <= row["lag"] < 5 for row in found)
    (far,) = (row for row in found if row["skew"] > 500)
    hints = told(fleet, "doctor", "-o", "json")["hints"]
    assert sum("the clock of the worker" in hint for hint in hints) == 1
    for words in (("workers", "list"), ("workers", "show", far["name"]), ("status",)):
        assert f"The clock of the worker {far['name']} is " in told(fleet, *words), words
    assert told(fleet, "workers", "show", far["name"], "-o", "json")["skew"] == pytest.approx(600, abs=0.4)
    assert fleet.log.read_text().count("this host's clock is") == 1

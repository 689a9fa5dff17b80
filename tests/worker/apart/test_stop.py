"""What stops a job in a child: its worker, and nobody else; softly first, and at once where the job is no longer the worker's."""

import os
import signal
import threading
import time
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobwell import App
from jobwell.actions import jobs as actions
from jobwell.worker.executors import children
from jobwell.worker.executors.kept import Kept
from tests.waiting import auntil
from tests.worker.apart.tasks import acpu, brief, cpu
from tests.worker.helpers import Desk, working


def written(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_all_processes_stops_no_job(app: App, desk: Desk, tmp_path: Path, number: int) -> None:
    """A service manager sends SIGTERM to everything in the group, a terminal SIGINT: the worker drains, and the jobs end."""
    one, other = tmp_path / "one", tmp_path / "other"
    async with working(app):
        jobs = [cpu.enqueue("nap", 10, str(one)), acpu.enqueue("nap", str(other))]
        await auntil(lambda: written(one) and written(other))
        server = vars(forkserver._forkserver)["_forkserver_pid"]
        for pid in (int(one.read_text()), int(other.read_text()), server):
            os.kill(pid, number)
        for job in jobs:
            found = await desk.end(job)
            assert (found["state"], found["attempt"], found["crashes"]) == ("succeeded", 1, 0)
        assert alive(server)


async def test_a_copy_that_is_terminated_does_not_stop_the_job(app: App, desk: Desk) -> None:
    async with working(app):
        found = await desk.end(acpu.enqueue("terminate a copy"))
    assert (found["state"], found["result"]) == ("succeeded", str(-signal.SIGTERM))


async def test_programs_that_a_job_starts_hear_their_signals(app: App, desk: Desk) -> None:
    """What is ignored in a process is ignored in the programs that it starts."""
    async with working(app):
        found = await desk.end(cpu.enqueue("interrupt a program"))
    assert found["result"] == f"[{-signal.SIGINT},{-signal.SIGTERM}]"


async def test_an_unasked_cancellation_is_no_operators(app: App, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobwell.core.outcome import Cancelled

    real, told = Kept.exchange, [1]

    def exchange(*args: Any) -> Any:
        outcome = real(*args)
        return Cancelled() if told and told.pop() else outcome

    monkeypatch.setattr(Kept, "exchange", exchange)
    async with working(app):
        job = cpu.enqueue("add", 3)
        found = await desk.end(job)
    assert found["state"] == "succeeded"
    assert desk.outcomes(job) == ["released"]


async def test_over_its_limit_a_job_has_a_moment_to_clean_up(app: App, desk: Desk, tmp_path: Path) -> None:
    """The limits look every 50 ms; no look but the first one may shorten that."""
    async with working(app):
        found = await desk.end(brief.enqueue("tidy", str(tmp_path / "tidy")))
    assert (found["error_type"], written(tmp_path / "tidy")) == ("TimeLimit", "tidied")


async def test_asked_again_and_again_it_has_the_same_moment(app: App, desk: Desk, tmp_path: Path) -> None:
    async with working(app) as worker:
        job = cpu.enqueue("tidy", path=str(tmp_path / "tidy"))
        await auntil(lambda: written(tmp_path / "tidy") == "begun")
        for _ in range(3):
            actions.named(app.database, "jobs.cancel", [job.id], by="olga")
            for attempt in worker._attempts:
                attempt.stop("cancelled")
        found = await desk.end(job, 8.0)
    assert (found["state"], written(tmp_path / "tidy")) == ("cancelled", "tidied")


@pytest.mark.parametrize("asked_before", [False, True])
async def test_a_job_that_is_lost_is_killed_at_once(
    app: App, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_before: bool
) -> None:
    """Another worker may run it by now."""
    monkeypatch.setattr(children, "KILL_AFTER", 60.0)
    path = tmp_path / "pid"
    async with working(app) as worker:
        cpu.enqueue("deaf", path=str(path))
        await auntil(lambda: written(path))
        pid, since = int(path.read_text()), time.monotonic()
        for attempt in worker._attempts:
            if asked_before:  # it is in its moment to clean up
                attempt.stop("shutdown")
            attempt.stop("lost")
        await auntil(lambda: not alive(pid), 5.0)
        assert time.monotonic() - since < 5


async def test_what_a_job_came_to_by_itself_is_kept_when_it_is_told_to_stop(
    app: App, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, ended, door = Kept.exchange, threading.Event(), threading.Event()

    def exchange(*args: Any) -> Any:
        outcome = real(*args)
        ended.set()
        assert door.wait(20)
        return outcome

    monkeypatch.setattr(Kept, "exchange", exchange)
    async with working(app) as worker:
        job = cpu.enqueue("reject", 7)
        await auntil(ended.is_set)
        for attempt in worker._attempts:
            attempt.stop("shutdown")
        door.set()
        found = await desk.end(job)
    assert (found["reason"], found["code"], desk.outcomes(job)) == ("rejected", "no_such_thing", ["failed"])


async def test_at_shutdown_it_goes_back_as_soon_as_it_is_killed(
    app: App, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "KILL_AFTER", 0.5)
    async with working(app) as worker:
        job = cpu.enqueue("deaf", path=str(tmp_path / "pid"))
        await auntil(lambda: written(tmp_path / "pid"))
        since = time.monotonic()
        for attempt in worker._attempts:
            attempt.stop("shutdown")
        await auntil(lambda: desk.one("select count(*) from attempts where outcome = 'released'") == 1, 5.0)
        assert 0.4 < time.monotonic() - since < 3
        actions.named(app.database, "jobs.cancel", [job.id], by="test")
        await desk.end(job)

"""What the scenario does when its processes do not do what they should."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from jobwell.demo import scenario
from jobwell.demo.processes import Child, DemoError
from jobwell.demo.progress import Silence
from jobwell.demo.world import World


@contextmanager
def _child(tmp_path: Path, program: str) -> Iterator[Child]:
    child = Child("the worker", ["-c", program], tmp_path / "log", os.environ)
    try:
        yield child
    finally:
        child.stop(1)


def test_a_worker_that_does_nothing_is_told_of_with_what_is_left(
    place: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario, "STUCK", 0.3)
    with _child(tmp_path, "import sys; sys.stdin.read()") as idle, pytest.raises(DemoError) as caught:
        scenario._work(place, idle, scenario.Options(people=300), Silence())
    assert "nothing has moved for" in str(caught.value)
    assert "1 ready hr.transfer.apply in bulk" in str(caught.value)


def test_a_worker_that_ends_is_told_of_with_its_last_words(place: World, tmp_path: Path) -> None:
    with (
        _child(tmp_path, "raise SystemExit('no luck today')") as gone,
        pytest.raises(DemoError, match="(?s)exit code 1.*no luck"),
    ):
        scenario._work(place, gone, scenario.Options(people=300), Silence())


def test_only_a_process_of_the_demo_is_ever_killed(place: World, tmp_path: Path) -> None:
    place.conn.execute(
        f"insert into {place.settings.schema}.workers (id, lease_until, pid, host, name, version, slots, queues)"
        " values (gen_random_uuid(), now() + interval '1 minute', %s, 'here', 'w', '0', 1, array['bulk'])",
        [os.getpid()],
    )
    with _child(tmp_path, "import sys; sys.stdin.read()") as team:
        assert scenario._kill_one(place, team) == ""


def test_stopping_ends_the_whole_family_also_where_it_does_not_listen(tmp_path: Path) -> None:
    stubborn = (
        "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); print('up', flush=True); signal.pause()"
    )
    with _child(tmp_path, stubborn) as child:
        while "up" not in child.tail():
            child.check()
        family = child.descendants()
        assert len(family) == 1
        assert child.stop(0.1) is None
        assert psutil.wait_procs(family, timeout=10)[1] == []


def test_the_sink_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jobwell.demo.sink", "--port-file", str(tmp_path / "port"), "--mailbox", str(tmp_path)]
    with subprocess.Popen([*command, "--with-parent"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0

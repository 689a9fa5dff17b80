"""The pytest plugin, as a company's suite has it: installed, found by its entry point, in a run of its own."""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

SHOP = """
from jobwell import App, Fixed

app = App()

@app.task(name="welcome", retry=Fixed("10m", attempts=2, jitter=0))
def welcome(n: int) -> int:
    if n < 0:
        raise TimeoutError("no mail server")
    return n * 2

@app.task(name="pay")
async def pay(n: int) -> int:
    return n
"""
PLAIN = "[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
INI = f"{PLAIN}jobwell_app = shop.jobs:app\n"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest in a project of its own, where Jobwell is installed."""
    installed = tmp_path / "site" / "jobwell_as_installed-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: jobwell-as-installed\nVersion: 0\n", encoding="utf-8")
    points = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]["pytest11"]
    lines = "".join(f"{name} = {target}\n" for name, target in points.items())
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{lines}", encoding="utf-8")
    project = tmp_path / "project"
    (project / "shop").mkdir(parents=True)
    (project / "shop" / "__init__.py").touch()
    (project / "shop" / "jobs.py").write_text(SHOP, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{installed.parent}:{project}")
    monkeypatch.setenv("JOBWELL_TEST_DATABASE_URL", database_url)

    def run(tests: str, *options: str, ini: str = INI, conftest: str = "") -> "subprocess.CompletedProcess[str]":
        (project / "pytest.ini").write_text(ini, encoding="utf-8")
        (project / "conftest.py").write_text(conftest, encoding="utf-8")
        (project / "test_shop.py").write_text(tests, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *options]
        return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=100)

    return run


def passed(ran: "subprocess.CompletedProcess[str]", count: int) -> None:
    assert f"{count} passed" in ran.stdout, ran.stdout + ran.stderr
    assert ran.returncode == 0, ran.stdout + ran.stderr


NOTED = """
import pathlib
import pytest

@pytest.fixture(autouse=True)
def note(testbed):
    with pathlib.Path("schemas.txt").open("a") as file:
        file.write(testbed.app.settings.schema + "\\n")
"""


def left(tmp_path: Path, conn: Any) -> tuple[int, int]:
    """How many schemas were used, and how many of them are still there."""
    names = set((tmp_path / "project" / "schemas.txt").read_text(encoding="utf-8").split())
    row = conn.execute("select count(*) from pg_namespace where nspname = any(%s)", [list(names)]).fetchone()
    return len(names), int(row[0])


TESTS = """
from shop.jobs import app, pay, welcome

def test_one(testbed):
    handle = welcome.enqueue(2)
    testbed.assert_enqueued(welcome, {"n": 2}, count=1)
    assert testbed.drain().succeeded == 1
    assert testbed.result(handle) == 4

def test_two(testbed):
    testbed.refute_enqueued(welcome)
    welcome.enqueue(-1)
    assert testbed.drain(retries=True).counts == {"retrying": 1, "failed": 1}
    assert testbed.quarantined(welcome)[0].reason == "exhausted"
"""


def test_the_app_is_found_by_the_ini_line_and_the_schema_is_dropped(run: Run, conn: Any, tmp_path: Path) -> None:
    passed(run(TESTS, conftest=NOTED), 2)
    assert left(tmp_path, conn) == (1, 0)


def test_the_app_is_given_by_a_fixture_of_any_scope(run: Run) -> None:
    fixture = """
import pytest
from jobwell import App
@pytest.fixture
def jobwell_app():
    app = App()
    @app.task(name="own")
    def own() -> None: ...
    app.own = own
    return app
"""
    tests = """
def test_one(testbed, jobwell_app):
    jobwell_app.own.enqueue()
    assert testbed.drain().succeeded == 1
def test_two(testbed, jobwell_app):
    jobwell_app.own.enqueue()
    assert testbed.drain().succeeded == 1
"""
    passed(run(tests, ini=PLAIN, conftest=fixture), 2)


def test_the_app_of_the_command_line_is_the_app_of_the_tests(run: Run, tmp_path: Path) -> None:
    (tmp_path / "project" / "jobwell.toml").write_text('app = "shop.jobs:app"\n', encoding="utf-8")
    passed(run(TESTS, ini=PLAIN), 2)


@pytest.mark.parametrize(
    ("ini", "said"),
    [
        (PLAIN, "testbed: no app is named. Put `jobwell_app = shop.jobs:app` into"),
        (f"{PLAIN}jobwell_app = shop.nothing:app\n", "jobwell_app = shop.nothing:app: there is no module 'shop.nothing'"),
        (f"{PLAIN}jobwell_app = shop.jobs:other\n", "'other' must be a jobwell.App"),
    ],
    ids=["none", "no module", "no such name"],
)
def test_an_app_that_is_not_there_is_said(run: Run, ini: str, said: str) -> None:
    ran = run("def test_one(testbed): ...\n", ini=ini)
    assert said in ran.stdout
    assert "1 error" in ran.stdout


def test_the_url_is_given_by_the_option(run: Run, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBWELL_TEST_DATABASE_URL", "postgresql://127.0.0.1:9/nowhere")
    ran = run(TESTS)
    assert "2 errors" in ran.stdout
    assert "cannot be reached" in ran.stdout
    passed(run(TESTS, f"--jobwell-database-url={database_url}"), 2)


def test_production_is_never_used(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JOBWELL_DATABASE_URL", "JOBWELL_DIRECT_URL"):
        monkeypatch.setenv(name, "postgresql://127.0.0.1:9/production")
    passed(run(TESTS), 2)


def test_a_failure_shows_what_was_enqueued(run: Run) -> None:
    tests = """
from shop.jobs import welcome
def test_one(testbed):
    welcome.enqueue(2)
    testbed.assert_enqueued(welcome, {"n": 3})
"""
    ran = run(tests)
    assert "expected at least one of welcome with n=3; enqueued: none" in ran.stdout
    assert "n: expected 3, was 2" in ran.stdout
    assert "1 failed" in ran.stdout


def test_the_clock_is_right_again_after_a_failing_test(run: Run) -> None:
    tests = """
from datetime import UTC, datetime, timedelta
def test_one(testbed):
    testbed.clock.travel("3d")
    testbed.clock.freeze()
    assert False
def test_two(testbed):
    assert abs(testbed.clock.now() - datetime.now(UTC)) < timedelta(minutes=5)
    assert not testbed.clock.frozen
"""
    ran = run(tests)
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout


def test_processes_of_xdist_do_not_see_each_other(run: Run, conn: Any, tmp_path: Path) -> None:
    tests = """
import pytest
from shop.jobs import app, welcome
names = set()
@pytest.mark.parametrize("n", range(20))
def test_one(testbed, n):
    assert testbed.jobs() == []
    welcome.enqueue(n)
    if n % 2:
        testbed.clock.travel("1h")
    assert [job.args["n"] for job in testbed.jobs()] == [n]
    assert testbed.drain().succeeded == 1
"""
    passed(run(tests, "-n", "2", conftest=NOTED), 20)
    assert left(tmp_path, conn) == (2, 0)


ASYNC = """
import pytest
from shop.jobs import app, pay, welcome
{mark}
async def test_one(testbed):
    await pay.aenqueue(1)
    await welcome.aenqueue(2)
    assert (await testbed.adrain(raising=True)).succeeded == 2
    async with testbed.inline():
        assert await (await pay.aenqueue(3)).astatus() == "succeeded"
    assert await testbed.aperform(pay, 4) == 4
{mark}
async def test_two(testbed):
    testbed.refute_enqueued(pay)
    with testbed.failing(pay, TimeoutError()):
        await pay.aenqueue(1)
        assert (await testbed.adrain()).retrying == 1
def test_three(testbed):
    pay.enqueue(1)
    assert testbed.drain().succeeded == 1
"""


@pytest.mark.parametrize(("mode", "mark"), [("auto", ""), ("strict", "@pytest.mark.asyncio")])
def test_pytest_asyncio(run: Run, mode: str, mark: str) -> None:
    passed(run(ASYNC.format(mark=mark), ini=f"{INI}asyncio_mode = {mode}\n"), 3)


def test_a_run_without_jobs_imports_nothing_of_jobwell(run: Run) -> None:
    tests = """
import sys
def test_one(request):
    assert request.config.pluginmanager.has_plugin("jobwell")
    assert [name for name in sys.modules if name.split(".")[0] in ("jobwell", "psycopg", "pydantic")] == []
"""
    passed(run(tests, ini=PLAIN), 1)


def test_a_suite_that_leaves_the_plugin_out_and_one_with_fixtures_of_the_same_name(run: Run) -> None:
    passed(run("def test_one(): ...\n", "-p", "no:jobwell", ini=PLAIN), 1)
    own = "import pytest\n@pytest.fixture\ndef testbed():\n    return 3\n"
    passed(run("def test_one(testbed):\n    assert testbed == 3\n", ini=PLAIN, conftest=own), 1)


def test_names_of_the_kit_are_not_taken_for_tests(run: Run) -> None:
    tests = "from jobwell.testing import *\nfrom jobwell.testing.schema import TestDatabase\nfrom pytest_jobwell import *\ndef test_one(): ...\n"
    passed(run(tests), 1)

"""App and Tasks: what a program declares, includes and discovers."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, DeclarationError, SettingsError, Tasks
from jobwell.client.task import AsyncTask, Task
from tests.client.helpers import one

URL = "postgresql://nowhere/none"  # never connected to


def fn(n: int = 0) -> None: ...
def other(n: int = 0) -> None: ...
async def later(n: int = 0) -> None: ...


# --- declaring -----------------------------------------------------------------------------------------------------------


def test_the_kind_of_task_follows_the_function() -> None:
    app = App(URL)
    assert type(app.task(fn)) is Task
    assert type(app.task(later)) is AsyncTask
    assert type(app.task(name="b")(later)) is AsyncTask


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ("notification", r"queue 'notification' is not declared \(did you mean 'notifications'\?\); declared are critical, "),
        ("hr", r"add it by App\(queues=\(…, 'hr'\)\)"), ("", "queue '' is not declared"), (None, "queue None is not declared"),
    ],
)  # fmt: skip
def test_a_queue_that_is_not_declared_is_refused_at_import(queue: Any, said: str) -> None:
    app = App(URL)
    with pytest.raises(DeclarationError, match=said):
        app.task(queue=queue)(fn)
    assert len(app.catalog) == 0


@pytest.mark.parametrize("queues", [["hr"], ("hr", "default"), {"hr"}, "hr", (name for name in ["hr"])])
def test_queues_are_declared_once_besides_the_standard_ones(queues: Any) -> None:
    app = App(URL, queues=queues)
    assert app.queues == ("critical", "notifications", "default", "bulk", "reports", "hr")
    assert app.task(queue="hr")(fn).spec.queue == "hr"


def test_a_wrong_setting_is_refused_when_the_app_is_made() -> None:
    with pytest.raises(SettingsError, match="there is no setting 'databse'"):
        App(URL, databse="x")
    with pytest.raises(SettingsError, match="is not a PostgreSQL URL"):
        App("mysql://db/jobs")


def test_two_tasks_of_one_name_are_refused() -> None:
    app = App(URL)
    app.task(name="hr.notify")(fn)
    with pytest.raises(DeclarationError, match="two tasks have the name 'hr.notify'"):
        app.task(name="hr.notify")(other)


# --- including -----------------------------------------------------------------------------------------------------------


def test_included_tasks_enqueue_through_the_app(app: App, conn: Connection[Any]) -> None:
    tasks = Tasks()
    task = tasks.task(name="hr.notify")(fn)
    with pytest.raises(DeclarationError, match="belongs to no app"):
        task.enqueue(1)
    app.include(tasks)
    handle = task.enqueue(1)
    assert one(conn, "select id, task from jobs") == (handle.id, "hr.notify")
    assert app.catalog["hr.notify"] is task.spec


def test_a_form_made_before_the_include_is_bound_too(app: App, conn: Connection[Any]) -> None:
    tasks = Tasks()
    urgent = tasks.task(name="hr.notify")(fn).using(priority=90)
    app.include(tasks)
    urgent.enqueue(1)
    assert one(conn, "select rank from jobs") == 10


def test_including_twice_changes_nothing() -> None:
    app, tasks = App(URL), Tasks()
    tasks.task(name="a")(fn)
    app.include(tasks, tasks)
    app.include(tasks)
    assert [spec.name for spec in app.catalog] == ["a"]


def test_a_name_that_is_taken_and_a_queue_that_is_not_declared_are_refused_at_include() -> None:
    app, taken, lost = App(URL), Tasks(), Tasks()
    app.task(name="a")(fn)
    taken.task(name="a")(other)
    lost.task(name="b", queue="hr")(fn)
    with pytest.raises(DeclarationError, match="two tasks have the name 'a'"):
        app.include(taken)
    with pytest.raises(DeclarationError, match="task b: queue 'hr' is not declared"):
        app.include(lost)
    assert [spec.name for spec in app.catalog] == ["a"]


# --- discovering ---------------------------------------------------------------------------------------------------------

MODULE = """
from jobwell import Tasks
tasks = Tasks()
@tasks.task
def {name}(n: int) -> None: ...
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with tasks in several modules."""
    files = {
        "__init__.py": "", "hr/__init__.py": "", "hr/tasks.py": MODULE.format(name="notify"), "hr/other.py": "raise SystemExit('imported')",
        "billing/__init__.py": "", "billing/tasks.py": MODULE.format(name="bill"), "billing/deep/__init__.py": "",
        "billing/deep/tasks.py": MODULE.format(name="dig") + "from shop_of_test.hr.tasks import tasks as again\n",
    }  # fmt: skip
    for name, text in files.items():
        path = tmp_path / "shop_of_test" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "shop_of_test"
    for name in [name for name in sys.modules if name.startswith("shop_of_test")]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.mark.parametrize(
    ("discover", "names"),
    [
        ("shop_of_test.*.tasks", ["billing.deep.tasks.dig", "billing.tasks.bill", "hr.tasks.notify"]),
        ("shop_of_test.hr.tasks", ["hr.tasks.notify"]), (["shop_of_test.hr.*s", "shop_of_test.billing.tasks"], ["billing.tasks.bill", "hr.tasks.notify"]),
        ((), []),
    ],
)  # fmt: skip
def test_load_imports_and_includes_what_the_patterns_name(shop: Path, discover: Any, names: list[str]) -> None:
    app = App(URL, discover=discover)
    assert len(app.catalog) == 0
    app.load()
    app.load()
    assert [spec.name for spec in app.catalog] == [f"shop_of_test.{name}" for name in names]


@pytest.mark.parametrize(
    "pattern",
    ["shop_of_test.*.jobs", "shop_of_test.nowhere", "nowhere_at_all", "nowhere_at_all.tasks", "nowhere_at_all.*", "*", "*.tasks", "json.decoder.*",
     "shop_of_test.hr.tasks.*"],
)  # fmt: skip
def test_a_pattern_that_matches_no_module_is_refused(shop: Path, pattern: str) -> None:
    with pytest.raises(DeclarationError, match=rf"discover='{pattern}' matches no module".replace("*", r"\*")):
        App(URL, discover=pattern).load()


@pytest.mark.parametrize("discover", ["shop_of_test.*.tasks", "shop_of_test.broken.tasks", "shop_of_test.broken"])
def test_a_module_that_cannot_be_imported_is_no_silence(shop: Path, discover: str) -> None:
    (shop / "broken").mkdir()
    (shop / "broken" / "__init__.py").write_text("import nowhere_at_all\n")
    (shop / "broken" / "tasks.py").write_text(MODULE.format(name="lost"))
    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        App(URL, discover=discover).load()


def test_load_checks_every_signature(shop: Path) -> None:
    (shop / "hr" / "tasks.py").write_text(MODULE.format(name="notify") + "@tasks.task\ndef wrong(x: 'Nowhere') -> None: ...\n")
    with pytest.raises(DeclarationError, match=r"task shop_of_test\.hr\.tasks\.wrong: "):
        App(URL, discover="shop_of_test.hr.tasks").load()


# --- weight --------------------------------------------------------------------------------------------------------------


def test_declaring_tasks_imports_neither_driver_nor_validator(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom jobwell import App\napp = App('postgresql://nowhere/none')\n"
        "@app.task\ndef task(n: int) -> None: ...\n"
        "print(sorted({'psycopg', 'psycopg_pool', 'pydantic', 'asyncio', 'uvloop', 'rich', 'click', 'structlog'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_closing_an_app_that_never_connected_does_nothing() -> None:
    App(URL).close()

"""Declarations: what is wrong is refused at import, with what would be right."""

import asyncio
import functools
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell import Backoff, Lock, Tasks
from jobwell.core.catalog import Catalog
from jobwell.core.errors import DeclarationError, NotFound
from jobwell.core.ids import gate_of
from jobwell.core.ranks import rank_of
from jobwell.core.task import TaskSpec


def plain(employee_id: int, department: str = "") -> None: ...
async def asynchronous(employee_id: int) -> None: ...
def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class Instance:
    def __call__(self) -> None: ...


def declared(fn: Any, **options: Any) -> TaskSpec:
    return Tasks().task(**options)(fn).spec  # type: ignore[no-any-return]


def test_a_bare_declaration_has_the_documented_defaults() -> None:
    spec = Tasks().task(plain).spec
    assert (spec.name, spec.queue, spec.priority) == ("tests.core.test_task.plain", "default", 0)
    assert (spec.timeout, spec.deadline) == (300, 86400)
    assert spec.retry == Backoff("10s", factor=3, cap="10m", attempts=5)
    assert (spec.owner, spec.tenant, spec.lock) == (None, None, None)
    assert spec.gate == gate_of(spec.name)


def test_the_executor_follows_the_kind_of_function() -> None:
    assert declared(plain).executor == declared(plain, executor="thread").executor == "thread"
    assert declared(asynchronous).executor == declared(asynchronous, executor="async").executor == "async"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"priority": 101}, "priority=101 must be a whole number from -100 to 100"), ({"priority": -101}, "priority=-101"),
        ({"priority": 1.0}, "priority=1.0"), ({"priority": True}, "priority=True"), ({"priority": "high"}, "priority='high'"),
        ({"timeout": 0}, "timeout=0 must be above zero"), ({"timeout": "soon"}, "timeout='soon' is not a duration"),
        ({"timeout": -1}, "timeout=-1"), ({"deadline": "never"}, "deadline='never' is not a duration"),
        ({"retry": 5}, r"retry=5 must be Backoff\(…\), Fixed\(…\), Delays\(…\) or Retries\(…\)"), ({"retry": Backoff}, "retry="),
        ({"tenant": "departement"}, r"tenant='departement' is not a parameter of the function \(did you mean 'department'\?\)"),
        ({"tenant": 5}, "tenant=5 is not a parameter"),
        ({"lock": Lock("employee")}, r"lock='employee' is not a parameter of the function \(did you mean 'employee_id'\?\)"),
        ({"lock": Lock("employee_id", "x")}, "lock='x' is not a parameter"),
        ({"executor": "async"}, "executor='async' does not fit: a plain function would block the loop"),
        ({"executor": "fiber"}, "executor='fiber' is not known; there are 'async', 'thread' and 'process'"),
        ({"name": "has space"}, "task name 'has space'"), ({"name": "x" * 201}, "task name"), ({"name": "1st"}, "task name"),
        ({"name": "nul\x00"}, "task name"), ({"name": "new\nline"}, "task name"), ({"name": "end\n"}, "task name"),
        ({"dedup": "employee_id"}, "dedup='employee_id' must be Dedup"),
        ({"resources": "smtp"}, r"resources='smtp' must be a tuple of names; write resources=\('smtp',\)"), ({"resources": ("a b",)}, "'a b'"),
        ({"concurrency": -1}, "concurrency=-1"), ({"rate": "often"}, "rate 'often' cannot be read"), ({"limits": (5,)}, "limits="),
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused_with_what_would_be_right(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        declared(plain, **options)


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (5, "is not a function"), ("shop.notify", "is not a function"), (Instance, "is not a function"), (Instance(), "is not a function"),
        (functools.partial(plain, 1), "is not a function"), (None, "is not a function"),
        (generator, "a generator cannot be a task"), (async_generator, "a generator cannot be a task"),
        (lambda: None, "task name .*<lambda>"),
    ],
    ids=lambda fn: getattr(fn, "__name__", repr(fn))[:20],
)  # fmt: skip
def test_what_is_no_plain_or_async_function_is_refused(fn: Any, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        Tasks().task()(fn)


def test_an_async_function_on_a_thread_is_refused() -> None:
    with pytest.raises(DeclarationError, match="an async function runs on the loop"):
        declared(asynchronous, executor="thread")


def test_a_lock_needs_a_parameter() -> None:
    with pytest.raises(DeclarationError, match=r"Lock\('employee_id'\)"):
        Lock()


@given(st.integers(-100, 100))
def test_a_higher_priority_has_a_lower_rank_within_smallint(priority: int) -> None:
    assert rank_of(priority) == 100 - priority
    assert 0 <= rank_of(priority) <= 200


# --- names ---------------------------------------------------------------------------------------------------------------


def test_a_function_within_a_function_has_a_readable_name() -> None:
    def notify() -> None: ...

    assert declared(notify).name == "tests.core.test_task.test_a_function_within_a_function_has_a_readable_name.notify"


def test_a_given_name_wins_and_makes_the_gate() -> None:
    assert declared(plain, name="hr.notify").gate == gate_of("hr.notify")


@pytest.mark.parametrize(
    ("command", "expected"),
    [(["shop/tasks.py"], "tasks.notify"), (["-m", "shop.tasks"], "shop.tasks.notify"), (["-m", "shop"], "shop.notify"),
     (["-c", "import shop.tasks"], "shop.tasks.notify")],
)  # fmt: skip
def test_main_is_resolved_to_the_module_that_a_worker_imports(tmp_path: Path, command: list[str], expected: str) -> None:
    code = "from jobwell import Tasks\n@Tasks().task\ndef notify(): ...\nprint(notify.name)\n"
    (tmp_path / "shop").mkdir()
    for name, text in (("__init__.py", ""), ("__main__.py", code), ("tasks.py", code)):
        (tmp_path / "shop" / name).write_text(text)
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (expected, "")


# --- the catalog ---------------------------------------------------------------------------------------------------------


def test_two_functions_cannot_share_a_name() -> None:
    tasks = Tasks()
    tasks.task(name="hr.notify")(plain)
    with pytest.raises(DeclarationError, match=r"two tasks have the name 'hr\.notify' .*plain and .*asynchronous"):
        tasks.task(name="hr.notify")(asynchronous)
    assert tasks.catalog["hr.notify"].fn is plain


def test_the_catalog_is_sorted_and_found_by_name() -> None:
    catalog = Catalog()
    for name in ("b", "c", "a"):
        catalog.add(declared(plain, name=name))
    assert [spec.name for spec in catalog] == ["a", "b", "c"]
    assert ("a" in catalog, "d" in catalog, len(catalog), catalog.get("d")) == (True, False, 3, None)


def test_a_name_that_is_not_there_is_answered_with_the_nearest() -> None:
    catalog = Catalog()
    catalog.add(declared(plain, name="hr.notify"))
    with pytest.raises(NotFound, match=r"no task is called 'hr.notfy'; did you mean 'hr.notify'\?"):
        catalog["hr.notfy"]


def test_check_names_the_task_whose_types_do_not_fit() -> None:
    def wrong(x: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    catalog = Catalog()
    catalog.add(declared(plain, name="good"))
    catalog.check()
    catalog.add(declared(wrong, name="bad"))
    with pytest.raises(DeclarationError, match="task bad: "):
        catalog.check()


# --- calling -------------------------------------------------------------------------------------------------------------


def test_a_task_can_be_called_like_its_function() -> None:
    from jobwell import Context, SyncContext

    tasks = Tasks()

    @tasks.task
    def double(n: int) -> int:
        return n * 2

    @tasks.task
    def whose(ctx: SyncContext, n: int) -> tuple[str, int, int]:
        return ctx.task, ctx.attempt, n

    @tasks.task
    async def later(ctx: Context, n: int) -> tuple[str, int]:
        return ctx.task, n

    assert double(2) == double.fn(2) == 4
    assert whose(n=3) == (whose.name, 1, 3)
    assert asyncio.run(later(4)) == (later.name, 4)
    assert repr(double) == f"<task {double.name}>"


def test_a_task_without_an_app_says_what_is_missing() -> None:
    task = Tasks().task(plain)
    for verb in (task.enqueue, task.job):
        with pytest.raises(DeclarationError, match=r"belongs to no app yet; call app\.include\(tasks\)"):
            verb(1)
    with pytest.raises(DeclarationError, match="belongs to no app yet"):
        asyncio.run(_enqueued(task))


async def _enqueued(task: Any) -> None:
    await task.aenqueue(1)

"""Rolling deploys: tasks that a worker does not know, payloads of other releases, renamed tasks."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from jobwell import App
from jobwell.core.errors import DeclarationError
from tests.waiting import auntil
from tests.worker.helpers import Desk, working


@pytest.fixture
def other(app: App) -> Iterator[App]:
    """Another release on the same tables."""
    made = App(app.settings.url, schema=app.settings.schema)
    yield made
    made.close()


async def test_b5_an_old_worker_leaves_what_it_does_not_know_for_a_new_one(app: App, other: App, desk: Desk) -> None:
    """Case B5."""

    @app.task(name="old")
    async def old() -> str:
        return "old"

    @other.task(name="old")
    async def old_too() -> str:
        return "old"

    @other.task(name="new.type")
    async def new() -> str:
        return "new"

    async with working(app):
        waits, runs = new.enqueue(), old.enqueue()
        await desk.end(runs)
        assert desk.state(waits) == "ready"
        async with working(other):
            assert (await desk.end(waits))["result"] == '"new"'
    assert desk.job(waits)["attempt"] == 1


async def test_b6_an_older_payload_goes_through_the_declared_upgrades(app: App, other: App, desk: Desk) -> None:
    """Case B6."""

    @other.task(name="greet")
    async def greet_1(name: str) -> str:
        return name

    @app.task(
        name="greet", version=3,
        upgrades={1: lambda args: {"first": args["name"], "last": ""}, 2: lambda args: {**args, "polite": True}},
    )  # fmt: skip
    async def greet_3(first: str, last: str, polite: bool) -> list[Any]:
        return [first, last, polite]

    old = greet_1.enqueue("Ada")
    new = greet_3.enqueue("Ada", "Lovelace", polite=False)
    async with working(app):
        assert (await desk.end(old))["result"] == '["Ada","",true]'
        assert (await desk.end(new))["result"] == '["Ada","Lovelace",false]'


async def test_b6_a_newer_payload_goes_back_uncounted_and_runs_on_a_newer_worker(
    app: App, other: App, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """Case B6."""

    @app.task(name="greet")
    async def greet_1(name: str) -> str:
        return name

    @other.task(name="greet", version=2)
    async def greet_2(names: list[str]) -> int:
        return len(names)

    caplog.set_level(logging.WARNING)
    job = greet_2.enqueue(["a", "b"])
    async with working(app):
        await auntil(lambda: desk.job(job)["postponements"] == 1)
    found = desk.job(job)
    assert (found["state"], found["failures"], found["attempt"]) == ("scheduled", 0, 0)
    assert "version 2, and this release knows 1" in caplog.text
    desk.conn.execute("update jobs set run_at = now(), postponements = 119")
    async with working(other):
        assert (await desk.end(job))["result"] == "2"
    again = greet_2.enqueue(["a"])
    desk.conn.execute("update jobs set postponements = 120")
    async with working(app):
        found = await desk.end(again)
    assert (found["reason"], found["failures"]) == ("unsupported", 0)


async def test_b6_an_argument_that_is_gone_is_told_by_name(app: App, other: App, desk: Desk) -> None:
    """Case B6."""

    @other.task(name="greet")
    async def greet_1(name: str, title: str) -> None: ...

    @app.task(name="greet")
    async def greet_2(name: str) -> None: ...

    job = greet_1.enqueue("Ada", "Dr")
    async with working(app):
        found = await desk.end(job)
    assert (found["reason"], found["attempt"]) == ("invalid", 1)
    assert "title" in found["message"]


async def test_b6_jobs_under_a_former_name_are_the_tasks_own(app: App, other: App, desk: Desk) -> None:
    """Case B6."""

    @other.task(name="mail.send")
    async def send(to: str) -> str:
        return to

    @app.task(name="post.send", aliases=("mail.send",))
    async def post(to: str) -> str:
        return to.upper()

    job = send.enqueue("ada")
    async with working(app):
        assert (await desk.end(job))["result"] == '"ADA"'
    assert await app.handle(job.id, post).aresult() == "ADA"
    assert desk.job(job)["task"] == "mail.send"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"version": 0}, "version=0"), ({"version": True}, "version=True"), ({"upgrades": {1: dict}}, r"upgrades\[1\]"),
        ({"version": 2, "upgrades": {1: "x"}}, r"upgrades\[1\]"), ({"aliases": ("a b",)}, "alias 'a b'"), ({"aliases": ("t",)}, "alias 't'"),
        ({"executor": "process"}, "top of a module"), ({"memory": "1GB"}, "executor='process'"),
    ],
)  # fmt: skip
def test_wrong_declarations_are_refused_at_import(app: App, options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):

        @app.task(name="t", **options)
        async def t() -> None: ...


def test_an_alias_belongs_to_one_task(app: App) -> None:
    @app.task(name="one", aliases=("former",))
    async def one() -> None: ...

    with pytest.raises(DeclarationError, match="belongs to the task one"):

        @app.task(name="two", aliases=("former",))
        async def two() -> None: ...

    with pytest.raises(DeclarationError, match="an alias of the task one"):

        @app.task(name="former")
        async def three() -> None: ...

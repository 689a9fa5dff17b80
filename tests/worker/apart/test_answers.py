"""What a child says: for its own job alone, as soon as the work is done, and nothing in it breaks the worker."""

import logging
import time
from typing import Any

import pytest

from jobwell import App
from tests.waiting import auntil
from tests.worker.apart.tasks import acpu, bounded, calling, cpu, hurried
from tests.worker.helpers import Desk, working


@pytest.mark.parametrize("task", [cpu, acpu])
async def test_a_copy_that_comes_back_answers_for_nobody(app: App, desk: Desk, task: Any) -> None:
    app.override({"children": 1})
    try:
        async with working(app):
            assert (await desk.end(task.enqueue("come back")))["result"] == '"right"'
            for n in range(4):  # an answer too many would be the next one's
                assert (await desk.end(cpu.enqueue("add", n)))["result"] == str(sum(range(n)))
    finally:
        app.override({"children": 2})
    assert desk.one("select count(*) from attempts where outcome <> 'succeeded'") == 0


async def test_an_answer_for_another_job_is_a_crash(app: App, desk: Desk) -> None:
    async with working(app):
        found = await desk.end(cpu.enqueue("forge"))
        assert (found["reason"], found["crashes"]) == ("crashed", 3)
        assert "did not answer as it should" in found["message"]
        assert (await desk.end(cpu.enqueue("add", 3)))["result"] == "3"


async def test_a_thread_left_behind_does_not_hold_the_outcome_up(app: App, desk: Desk) -> None:
    app.override({"children": 1})
    try:
        async with working(app):
            since = time.monotonic()
            assert (await desk.end(acpu.enqueue("leave a thread")))["state"] == "succeeded"
            assert (await desk.end(cpu.enqueue("add", 3)))["state"] == "succeeded"
            assert time.monotonic() - since < 10
    finally:
        app.override({"children": 2})


async def test_a_child_whose_function_goes_on_after_its_attempt_is_not_used_again(app: App, desk: Desk) -> None:
    """A middleware has given up on it; the next job would wait behind it."""
    app.override({"children": 1})
    try:
        async with working(app):
            assert (await desk.end(hurried.enqueue()))["error_type"] == "TimeoutError"
            assert (await desk.end(cpu.enqueue("add", 3), 8.0))["result"] == "3"
    finally:
        app.override({"children": 2})


async def test_stop_iteration_is_an_error_as_any_other(app: App, desk: Desk) -> None:
    async with working(app):
        found = await desk.end(cpu.enqueue("stop iteration"), 10.0)
    assert (found["reason"], found["failures"], "StopIteration" in found["message"]) == ("exhausted", 3, True)


async def test_what_the_command_line_overrides_holds_in_children(app: App, desk: Desk) -> None:
    app.override({"lease": "31s"})
    try:
        async with working(app):
            found = await desk.end(cpu.enqueue("where"))
    finally:
        app.override({"lease": "30s"})
    assert found["result"] == f'["{app.settings.schema}",31.0]'


async def test_a_log_line_that_cannot_be_logged_costs_nobody_the_job(
    app: App, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_record: logging.LogRecord) -> bool:
        raise KeyError("a filter of the application")

    logger = logging.getLogger("shop")
    logger.addFilter(broken)
    try:
        async with working(app):
            job = cpu.enqueue("log", 3)
            found = await desk.end(job)
    finally:
        logger.removeFilter(broken)
    assert (found["state"], desk.outcomes(job)) == ("succeeded", [])
    assert "a log line of a child process is lost" in caplog.text


async def test_memory_is_looked_at_also_while_the_job_logs(app: App, desk: Desk) -> None:
    async with working(app):
        found = await desk.end(bounded.enqueue("chatter", 400_000_000))
    assert found["error_type"] == "MemoryLimit"


async def test_pages_that_copies_share_count_once(app: App, desk: Desk) -> None:
    async with working(app):
        found = await desk.end(bounded.enqueue("share", 100_000_000))
    assert (found["state"], found["result"]) == ("succeeded", "400000000")


async def test_what_calls_of_resources_told_comes_with_the_outcome(app: App, desk: Desk) -> None:
    async with working(app):
        assert (await desk.end(calling.enqueue(2)))["message"] == "2.0"
        await auntil(lambda: desk.one("select good, bad, firsts from breakers where resource = 'gateway'") == (2, 0, 1))
        await desk.end(calling.enqueue(3))  # three attempts, each with two that went well
        await auntil(
            lambda: desk.one("select good, bad, firsts, retries from breakers where resource = 'gateway'") == (8, 3, 2, 2)
        )


async def test_a_retry_from_a_child_goes_to_another_queue(app: App, desk: Desk) -> None:
    handle = cpu.enqueue("move", -7)
    async with working(app):
        found = await desk.end(handle)
    assert (found["result"], found["queue"], found["priority"]) == ('"bulk"', "bulk", -7)
    assert [(row["note"], row["queue"], row["origin"]) for row in found["attempts"]] == [
        ("goes to bulk at priority -7", "default", "code"), (None, None, None),
    ]  # fmt: skip

"""Log lines: whoever logs inside an attempt, the line tells the job; as JSON for machines, as text for people."""

import io
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from jobwell import App, Context, Reject, SyncContext
from jobwell.cli import logs as cli_logs
from jobwell.client import correlation
from jobwell.core import log_fields
from jobwell.worker import logs
from tests.waiting import auntil, until
from tests.worker.helpers import QUICK, Acts, Desk, working

ROOT = Path(__file__).parents[2]
Read = Callable[[], list[dict[str, Any]]]
elsewhere = logging.getLogger("shop.billing")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Takes the place of standard error; logging is as before at the end."""
    stream = io.StringIO()
    root = logging.getLogger()
    before, level, pool = root.handlers[:], root.level, logging.getLogger("psycopg.pool").level
    root.handlers = []  # those of pytest are not closed by `force`
    yield stream
    root.handlers, root.level = before, level
    logging.getLogger("psycopg.pool").setLevel(pool)
    structlog.reset_defaults()


@pytest.fixture
def lines(stream: io.StringIO) -> Read:
    """The log as JSON."""
    configure(stream, "json")
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def configure(stream: io.StringIO, form: str) -> None:
    with pytest.MonkeyPatch.context() as patch:  # for the moment of it only: pytest has a standard error for each phase of a test
        patch.setattr(sys, "stderr", stream)
        cli_logs.configure(form)


async def one_line(lines: Read, event: str) -> dict[str, Any]:
    await auntil(lambda: any(line["event"] == event for line in lines()), what=f"{event!r} in the log")
    return next(line for line in lines() if line["event"] == event)


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("library", ["logging", "structlog", "ctx.logger"])
async def test_every_line_inside_an_attempt_tells_its_job(app: App, desk: Desk, lines: Read, kind: str, library: str) -> None:
    def say(ctx: Any) -> None:
        if library == "logging":
            elsewhere.info("paid %d", 7, extra={"amount": 7})
        elif library == "structlog":
            structlog.get_logger("shop.billing").info("paid 7", amount=7)
        else:
            ctx.logger.info("paid %d", 7, extra={"amount": 7})

    task: Any
    if kind == "async":

        @app.task(name="pay", tenant="who")
        async def pay(ctx: Context, who: str) -> None:
            say(ctx)

        task = pay
    else:

        @app.task(name="pay", tenant="who")
        def pay_plain(ctx: SyncContext, who: str) -> None:
            say(ctx)

        task = pay_plain
    with app.correlate(request_id="r-1", initiator="hr.officer", step=2):
        job = task.enqueue("acme")
    async with working(app):
        line = await one_line(lines, "paid 7")
    assert line.pop("timestamp").endswith("Z")
    assert line.pop("logger") == ("jobwell.task.pay" if library == "ctx.logger" else "shop.billing")
    assert line == {
        "event": "paid 7", "level": "info", "amount": 7, "job": str(job.id), "task": "pay", "attempt": 1, "queue": "default", "tenant": "acme",
        "request_id": "r-1", "initiator": "hr.officer", "step": 2,
    }  # fmt: skip


async def test_a_line_after_an_enqueue_still_tells_its_own_job_and_parent(app: App, lines: Read) -> None:
    @app.task(name="child")
    async def child() -> None:
        await grandchild.aenqueue()
        with app.correlate(step="inner"):
            elsewhere.info("child")

    @app.task(name="grandchild")
    async def grandchild() -> None:
        elsewhere.info("grandchild")

    @app.task(name="parent")
    async def parent() -> None:
        await child.aenqueue()
        elsewhere.info("parent")

    with app.correlate(request_id="r-1"):
        first = await parent.aenqueue()
    async with working(app):
        of = {name: await one_line(lines, name) for name in ("parent", "child", "grandchild")}
    assert of["parent"]["job"] == str(first.id)
    assert "parent" not in of["parent"]
    assert of["child"]["parent"] == of["parent"]["job"]
    assert of["grandchild"]["parent"] == of["child"]["job"]
    assert (of["child"]["step"], "step" in of["grandchild"]) == ("inner", False)
    assert {line["request_id"] for line in of.values()} == {"r-1"}


async def test_neighbours_are_not_mixed_up(acts: Acts, lines: Read) -> None:
    acts.words = {"say": lambda ctx, n: elsewhere.info("line %d", n)}
    jobs = {n: await (acts.act if n % 2 else acts.act_plain).aenqueue("say", n) for n in range(30)}
    async with working(acts.app):
        await auntil(lambda: sum(line["event"].startswith("line") for line in lines()) == 30)
    assert {line["event"]: line["job"] for line in lines() if line["logger"] == "shop.billing"} == {
        f"line {n}": str(job.id) for n, job in jobs.items()
    }
    elsewhere.info("outside")
    assert "job" not in lines()[-1]


async def test_failures_are_told_with_fields_and_without_arguments(app: App, desk: Desk, lines: Read) -> None:
    secret = "hunter2-s3cret"

    @app.task(name="fails", retry=QUICK)
    async def fails(password: str, n: int) -> None:
        held = password
        if n == 1:
            elsewhere.exception("logged by hand", exc_info=ConnectionResetError("gone"))
            raise ConnectionResetError("gone") from None
        assert held
        raise Reject("no_such", "nobody there")

    jobs = [await fails.aenqueue(secret, n) for n in (1, 2)]
    async with working(app):
        for job in jobs:
            await desk.end(job)
        retried = await one_line(lines, "failed, next attempt in 10ms: ConnectionResetError: gone")
        exhausted = await one_line(lines, "failed for good (exhausted): ConnectionResetError: gone")
        rejected = await one_line(lines, "failed for good (rejected): Reject: nobody there")
        by_hand = await one_line(lines, "logged by hand")
    assert (retried["level"], exhausted["level"], rejected["level"]) == ("info", "error", "error")
    assert (retried["error_type"], retried["error_message"], retried["error_kind"]) == (
        "ConnectionResetError",
        "gone",
        "temporary",
    )
    assert "in fails\n" in exhausted["traceback"]
    assert (rejected["reason"], rejected["code"], rejected["job"], rejected["logger"]) == (
        "rejected",
        "no_such",
        str(jobs[1].id),
        "jobwell.job",
    )
    (told,) = by_hand["exception"]
    assert (told["exc_type"], told["exc_value"]) == ("ConnectionResetError", "gone")
    assert secret not in json.dumps(lines())


async def test_an_exception_inside_an_attempt_is_structured_and_shows_no_locals(app: App, lines: Read) -> None:
    @app.task(name="catches")
    def catches(password: str) -> None:
        try:
            int("wrong")
        except ValueError:
            elsewhere.exception("caught")
            structlog.get_logger().exception("caught too")

    await catches.aenqueue("hunter2-s3cret")
    async with working(app):
        both = [await one_line(lines, "caught"), await one_line(lines, "caught too")]
    for line in both:
        (told,) = line["exception"]
        assert told["exc_type"] == "ValueError"
        assert told["frames"][-1]["name"] == "catches"
        assert "hunter2" not in json.dumps(line)


async def test_people_read_text_without_locals(app: App, desk: Desk, stream: io.StringIO) -> None:
    configure(stream, "text")

    @app.task(name="catches")
    def catches(password: str) -> None:
        try:
            int("wrong")
        except ValueError:
            elsewhere.exception("caught")
        raise Reject("no_such", "nobody there")

    with app.correlate(request_id="r-9"):
        job = await catches.aenqueue("hunter2-s3cret")
    async with working(app):
        await desk.end(job)
        await auntil(lambda: "failed for good" in stream.getvalue())
    text = stream.getvalue()
    line = next(line for line in text.splitlines() if "caught" in line)
    assert all(word in line for word in (f"job={job.id}", "task=catches", "request_id=r-9", "[shop.billing]"))
    assert "ValueError: invalid literal for int() with base 10: 'wrong'" in text
    assert 'raise Reject("no_such", "nobody there")' in text  # the traceback of the failure, as a block of its own
    assert "hunter2" not in text
    assert "\\n" not in text


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3), KeyboardInterrupt()])
async def test_a_broken_filter_of_the_application_costs_no_outcome(acts: Acts, desk: Desk, error: BaseException) -> None:
    asked: list[str] = []

    def broken(record: logging.LogRecord) -> bool:
        asked.append(record.getMessage())
        raise error

    logs.log.addFilter(broken)
    try:
        job = await acts.act.aenqueue("reject")
        async with working(acts.app) as worker:
            assert (await desk.end(job))["reason"] == "rejected"
            await auntil(lambda: worker.busy == 0)
    finally:
        logs.log.removeFilter(broken)
    assert asked


# --- names and configurations of one's own -------------------------------------------------------------------------------


def test_names_that_a_record_has_itself_are_not_taken_over(app: App) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(logs.JobFields())
    handler.setFormatter(
        logging.Formatter("%(name)s %(message)s %(carried_name)s %(carried_message)s %(carried_task)s %(request_id)s")
    )
    logger = logging.getLogger("of.its.own")
    logger.addHandler(handler)
    with app.correlate(name="n", message="m", task="t", request_id="r"):
        logger.warning("hello")
        logger.warning("mine", extra={"request_id": "other"})
    logger.removeHandler(handler)
    assert stream.getvalue().splitlines() == ["of.its.own hello n m t r", "of.its.own mine n m t other"]


def test_a_bound_logger_takes_any_carried_name(app: App) -> None:
    names = [*log_fields.TAKEN, "request_id"]
    carried = json.dumps(dict.fromkeys(names, "x"))
    ctx = SyncContext(
        id=App().handle(__import__("uuid").uuid4()).id,
        task="t",
        queue="q",
        tenant="",
        attempt=1,
        deadline_in=None,
        monotonic=float,
        meta=carried,
    )
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    ctx.logger.logger.addHandler(handler)
    ctx.logger.warning("any", extra={"attempt": 7, "more": 1})
    ctx.logger.logger.removeHandler(handler)
    (record,) = records
    fields = vars(record)
    assert (fields["task"], fields["attempt"], fields["more"], fields["request_id"], fields["carried_message"]) == (
        "t",
        7,
        1,
        "x",
        "x",
    )


def test_a_processor_for_structlog_configurations_of_ones_own(app: App) -> None:
    with app.correlate(request_id="r-1"):
        assert logs.add_job_fields(None, "info", {"event": "x", "request_id": "mine"}) == {"event": "x", "request_id": "mine"}
        assert logs.add_job_fields(None, "info", {"event": "x"}) == {"event": "x", "request_id": "r-1"}
    assert logs.add_job_fields(None, "info", {"event": "x"}) == {"event": "x"}


async def test_the_fields_are_made_only_when_a_line_is_logged(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(log_fields, "of_job", lambda *given, **more: made.append(given) or {})
    monkeypatch.setattr(correlation, "running", lambda: made.append("running") or (None, {}))
    for n in range(5):
        await acts.act.aenqueue("give", n)
    async with working(acts.app) as worker:
        await auntil(lambda: worker.finished == 5)
    assert made == []


def test_a_producer_and_a_worker_told_none_leave_logging_alone(stream: io.StringIO, app: App) -> None:
    before = logging.getLogger().handlers[:]
    cli_logs.configure("none")
    assert logging.getLogger().handlers == before
    assert not structlog.is_configured()


# --- the command ---------------------------------------------------------------------------------------------------------

SHOP = """
import logging, os
from jobwell import App
app = App()
if os.environ.get("OWN"):
    logging.basicConfig(level=logging.INFO, format="OWN %(name)s %(message)s")

@app.task(name="say")
def say(word: str) -> None:
    logging.getLogger("shop").info("it says %s", word)
"""


@pytest.mark.parametrize(("form", "own"), [("json", ""), ("none", "1"), ("text", "")])
def test_the_worker_command_logs_as_it_is_told(
    app: App, desk: Desk, database_url: str, schema: str, tmp_path: Path, form: str, own: str
) -> None:
    (tmp_path / "logshop.py").write_text(SHOP)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("JOBWELL_")}
    environ |= {
        "JOBWELL_DATABASE_URL": database_url,
        "JOBWELL_SCHEMA": schema,
        "JOBWELL_LOG": form,
        "OWN": own,
        "JOBWELL_GRACE": "1s",
    }
    environ["PYTHONPATH"] = str(ROOT / "src")

    @app.task(name="say")
    def say(word: str) -> None: ...

    job = say.enqueue("hello")
    log = tmp_path / "log"
    with log.open("wb") as out:
        worker = subprocess.Popen(
            [sys.executable, "-m", "jobwell", "worker", "logshop:app"],
            env=environ,
            cwd=tmp_path,
            stderr=out,
            stdout=out,
            stdin=subprocess.DEVNULL,
        )
    try:
        until(lambda: desk.state(job) == "succeeded")
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(20)
    said = log.read_text()
    line = next(line for line in said.splitlines() if "it says hello" in line)
    if form == "json":
        assert {name: json.loads(line)[name] for name in ("job", "task", "logger")} == {
            "job": str(job.id),
            "task": "say",
            "logger": "shop",
        }
        assert all(json.loads(line) for line in said.splitlines() if line.startswith("{"))
    elif form == "none":
        assert line == "OWN shop it says hello"
        assert "OWN jobwell.supervisor worker" in said  # Jobwell's own lines go the same way
    else:
        assert f"job={job.id}" in line

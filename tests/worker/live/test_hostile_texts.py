"""Whatever a job raises or leaves, its worker lives on and the end of the job is stored."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from jobwell import App, Fixed, Reject, Retry, Snooze
from tests.worker.live.helpers import BOTH, SOON, Books, Kind, Make, Start, declare, raising

TEXTS = {
    "nul": "a\x00b", "lone surrogates": "a\ud800b\udfff", "emoji": "🛠️👩‍👩‍👧🇰🇿", "invalid bytes": b"\xff\xfe\x80 caf\xe9".decode(errors="surrogateescape"),
    "escapes": "\x1b[31mred\x9b0m", "quotes": "'; drop table jobs; -- \\ \"$1 %s {} :id",
}  # fmt: skip
texts = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())


class SilentError(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError("no text")


class DeadlyText(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


class NoText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307


class Bare(Reject):
    def __init__(self) -> None:
        Exception.__init__(self, "bare")  # and neither code nor message


class WrongWish(Retry):
    def __init__(self) -> None:
        Exception.__init__(self)  # and no `after`


def _deep() -> None:
    _deep()


def _in_group() -> None:
    raise ExceptionGroup("both", [ValueError("a\x00"), ExceptionGroup("inner", [SilentError(), KeyError("\ud800")])])


HOSTILE: dict[str, Callable[[], Any]] = {
    "SystemExit": raising(SystemExit(7)), "KeyboardInterrupt": raising(KeyboardInterrupt), "CancelledError": raising(asyncio.CancelledError),
    "StopIteration": raising(StopIteration), "StopAsyncIteration": raising(StopAsyncIteration), "GeneratorExit": raising(GeneratorExit),
    "RecursionError": _deep, "ExceptionGroup": _in_group,
    "BaseExceptionGroup": raising(lambda: BaseExceptionGroup("x", [SystemExit(1)])), "a silent error": raising(SilentError),
    "a deadly text": raising(DeadlyText), "a text that is none": raising(NoText), "MemoryError": raising(MemoryError),
    "a bare Reject": raising(Bare), "a Retry without a wish": raising(WrongWish),
}  # fmt: skip


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
async def test_nothing_that_is_raised_kills_the_worker(app: App, start: Start, books: Books, kind: Kind, body: Any) -> None:
    @app.task(name="well")
    async def well() -> str:
        return "well"

    job = await declare(app, kind, body, retry=SOON).aenqueue()
    working = await start()
    end = await books.ended(job)
    tries = 5 if body is HOSTILE["a Retry without a wish"] else 3  # that one is known to pass
    if body is HOSTILE["RecursionError"]:  # a mistake in the code: it would be made again
        assert (end["state"], end["reason"], end["attempt"]) == ("failed", "rejected", 1)
    else:
        assert (end["state"], end["reason"], end["attempt"]) == ("failed", "exhausted", tries)
        assert books.history(job) == ["retrying"] * (tries - 1) + ["failed"]
    assert (await books.ended(await well.aenqueue()))["result"] == "well"
    assert await working.stop() == 0


@texts
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("many", [1, 5])
async def test_the_text_of_an_error_is_stored_cleaned(
    app: App, start: Start, books: Books, text: str, kind: Kind, many: int
) -> None:
    error = type("Odd", (Exception,), {"__module__": f"shop{text}"})
    task = declare(app, kind, raising(lambda: error(text)), retry=Fixed("1ms", attempts=2))
    jobs = [await task.aenqueue() for _ in range(many)]
    await start()
    for job in jobs:
        end = await books.ended(job)
        assert (end["state"], end["reason"]) == ("failed", "exhausted")
        assert len(books.history(job)) == 2
        assert end["message"]
        assert "raise error" in end["traceback"]
        if text == TEXTS["emoji"]:
            assert end["message"] == text


@texts
async def test_code_and_message_of_a_reject_are_stored(app: App, start: Start, books: Books, text: str) -> None:
    job = await declare(app, "async", raising(lambda: Reject(text, text))).aenqueue()
    await start()
    end = await books.ended(job)
    assert end["reason"] == "rejected"
    assert len(end["code"]) == len(end["message"]) == len(text)


@pytest.mark.parametrize(
    "given", [(404, "not found"), (None, None), ("code", 5), (b"\xff", b"\x00"), (["a"], {"b": 1})], ids=repr
)
async def test_a_reject_with_other_things_than_texts_is_a_reject(app: App, start: Start, books: Books, given: Any) -> None:
    code, message = given
    job = await declare(app, "async", raising(lambda: Reject(code, message))).aenqueue()
    await start()
    end = await books.ended(job)
    assert (end["reason"], end["attempt"]) == ("rejected", 1)
    assert end["code"] == str(code)
    assert end["message"] == str(message or code)


@texts
async def test_the_message_of_a_snooze_is_stored(app: App, start: Start, books: Books, text: str) -> None:
    job = await declare(app, "async", raising(lambda: Snooze("1h", text))).aenqueue()
    await start()
    await books.in_state(job, "scheduled")
    ((outcome, note),) = books.history(job, "outcome", "note")
    assert (outcome, len(note)) == ("snoozed", len(text))


@texts
@pytest.mark.parametrize(
    "wrap", [lambda t: t, lambda t: [t], lambda t: {"key": t}, lambda t: {t: 1}], ids=["plain", "list", "dict", "key"]
)
async def test_a_result_is_kept_or_noted_and_never_costs_another_run(
    app: App, start: Start, books: Books, text: str, wrap: Callable[[str], Any]
) -> None:
    runs: list[int] = []

    def body() -> Any:
        runs.append(1)
        return wrap(text)

    job = await declare(app, "async", body).aenqueue()
    await start()
    end = await books.ended(job)
    if text.isprintable() or "\x1b" in text or "🛠" in text:
        kept = end["result"] == wrap(text) and end["note"] is None
    else:
        kept = end["result"] is None and end["note"].startswith("its result could not be stored: ")
    assert (end["state"], kept, len(runs), end["attempt"]) == ("succeeded", True, 1, 1)


class Unreadable:
    """Raises whenever it is looked at."""

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)

    def __repr__(self) -> str:
        raise ZeroDivisionError


def _ring() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    "given", [object, lambda: asyncio.Event, lambda: [object()], _ring, Unreadable, lambda: {Unreadable(): 1}, lambda: 10**5000],
    ids=["object", "class", "inside", "ring", "unreadable", "key", "long int"],
)  # fmt: skip
async def test_a_result_that_cannot_be_encoded_is_noted(app: App, start: Start, books: Books, kind: Kind, given: Any) -> None:
    runs: list[int] = []

    def body() -> Any:
        runs.append(1)
        return given()

    job = await declare(app, kind, body).aenqueue()
    await start()
    end = await books.ended(job)
    assert (end["state"], end["result"], len(runs)) == ("succeeded", None, 1)
    assert end["note"].startswith("its result could not be stored: ")


@pytest.mark.parametrize(
    ("size", "note"),
    [
        (1998, None),
        (1999, "its result takes 2,001 bytes and was not stored; the limit is 2,000"),
        (5_000_000, "its result takes 5,000,002 bytes and was not stored; the limit is 2,000"),
    ],
)
async def test_a_result_above_the_limit_is_noted_with_its_size(
    make: Make, start: Start, books: Books, size: int, note: str | None
) -> None:
    app = make(result_limit=2000)
    job = await declare(app, "async", lambda: "x" * size).aenqueue()
    await start(app)
    end = await books.ended(job)
    assert (end["state"], end["note"], end["result"]) == ("succeeded", note, None if note else "x" * size)


async def test_huge_texts_are_cut_in_the_middle(app: App, start: Start, books: Books) -> None:
    text = "begin" + "x" * 3_000_000 + "end"
    job = await declare(app, "async", raising(lambda: ValueError(text)), retry=Fixed("1ms", attempts=1)).aenqueue()
    await start()
    end = await books.ended(job)
    assert (len(end["message"]), len(end["traceback"])) == (4_000, 16_000)
    assert end["message"].startswith("beginx")
    assert end["message"].endswith("xend")
    assert " characters cut " in end["message"]


@pytest.mark.parametrize(
    "args",
    [
        '{"n": "seven"}',
        "{}",
        '{"n": 1, "more": 2}',
        "[1]",
        "7",
        "null",
        '{"n": {"$new": 1}}',
        '{"n": {"$data": ["os.System", {}]}}',
    ],
)
async def test_an_invalid_payload_goes_to_the_quarantine_unrun(app: App, start: Start, books: Books, args: str) -> None:
    runs: list[int] = []

    @app.task(name="job", retry=SOON)
    async def job(n: int) -> None:
        runs.append(n)

    handle = await job.aenqueue(1)
    books.conn.execute("update jobs set args = %s", [args])
    await start()
    end = await books.ended(handle)
    assert (end["reason"], end["failures"], runs) == ("invalid", 0, [])
    assert end["message"].startswith("the payload does not fit the task: ")


async def test_an_unknown_task_stays_ready_and_untouched(app: App, make: Make, start: Start, books: Books) -> None:
    job = await declare(make(), "async", lambda: None).aenqueue()
    before = books.live(job)

    @app.task(name="known")
    async def known() -> None: ...

    await start()
    await books.ended(await known.aenqueue())
    await books.ended(await known.aenqueue())
    assert books.live(job) == before
    assert before is not None
    assert (before["state"], before["attempt"]) == ("ready", 0)

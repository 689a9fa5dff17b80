"""Whatever a job raises, returns or says (cases H1 and H2): its end is stored, and the worker lives on."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from jobwell import App, Fixed, Reject, Retry, Snooze
from tests.waiting import auntil
from tests.worker.helpers import RAISED, Acts, Desk, working

both = pytest.mark.parametrize("kind", ["act", "act_plain"])
ENDS_THE_PROCESS = ["exit", "exit with words", "interrupt", "generator exit", "base group", "base", "cancelled"]
ODD = [word for word in RAISED if word not in {"logical", "reject", "retry"}] + ["recursion"]

NASTY = {
    "NUL": "a\x00b", "lone surrogate": "a\ud800b", "pair of surrogates": "\ud83d\ude00", "emoji": "🛠️🧑‍🔧", "bytes that are no UTF-8": b"\xff\xfe\x80".decode("utf-8", "surrogateescape"),
    "controls": "\x1b[31m\x07\x9b\u202e", "everything": "\x00\ud800\udfff\U0010ffff\uffff 'quoted' \\ \"$1\" {} %s", "long": "я" * 100_000, "long and nasty": "\x00\ud800" * 100_000, "empty": "",
}  # fmt: skip
nasty = pytest.mark.parametrize("text", NASTY.values(), ids=list(NASTY))


def raising(error: Callable[[], BaseException]) -> Callable[[Any, int], Any]:
    def word(ctx: Any, n: int) -> None:
        raise error()

    return word


async def alive(acts: Acts, desk: Desk) -> None:
    """The worker still does its work, on the loop and on threads."""
    for kind in (acts.act, acts.act_plain):
        assert (await desk.end(kind.enqueue("ok")))["state"] == "succeeded"


# --- what is raised ------------------------------------------------------------------------------------------------------


@both
async def test_neighbours_of_an_exit_are_not_harmed(app: App, acts_with: Callable[..., Acts], desk: Desk, kind: str) -> None:
    acts = acts_with(retry=Fixed("5ms", attempts=1))
    neighbours = [acts.act.enqueue("wait"), acts.act_plain.enqueue("wait")]
    async with working(app):
        await auntil(lambda: acts.under_way == 2)
        for word in ENDS_THE_PROCESS:
            assert (await desk.end(getattr(acts, kind).enqueue(word)))["state"] == "failed"
        acts.open_all()
        assert {(await desk.end(handle))["attempt"] for handle in neighbours} == {1}
    assert desk.states() == {"succeeded": 2, "failed": len(ENDS_THE_PROCESS)}


class Unreadable(Exception):
    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __str__(self) -> str:
        raise self.error

    __repr__ = __str__


class Mute(Exception):
    __module__ = None  # type: ignore[assignment]


class BareReject(Reject):
    def __init__(self) -> None: ...


class BareRetry(Retry):
    def __init__(self) -> None: ...


class BareSnooze(Snooze):
    def __init__(self) -> None: ...


def with_odd_notes() -> BaseException:
    error = ValueError("x")
    error.add_note("\x00\ud800")
    error.__notes__.append(5)  # type: ignore[arg-type]
    return error


def in_a_circle() -> BaseException:
    error = ValueError("round")
    other = KeyError("and round")
    error.__cause__, other.__cause__ = other, error
    return error


MALFORMED: dict[str, Callable[[], BaseException]] = {
    "text raises": lambda: Unreadable(ZeroDivisionError), "text exits": lambda: Unreadable(SystemExit), "text interrupts": lambda: Unreadable(KeyboardInterrupt),
    "text recurses": lambda: Unreadable(RecursionError), "no module": Mute, "a code that is a number": lambda: Reject(404, "gone"),  # type: ignore[arg-type]
    "a message that is a dict": lambda: Reject("gone", {"id": 7}), "a code that is None": lambda: Reject(None), "a code that cannot be read": lambda: Reject(Unreadable(ValueError)),  # type: ignore[arg-type]
    "Reject without init": BareReject, "Retry without init": BareRetry, "Snooze without init": BareSnooze, "a message in bytes": lambda: Snooze(0.01, b"\xff"),  # type: ignore[arg-type]
    "Retry with odd words": lambda: Retry(Unreadable(ValueError)), "Snooze with odd words": lambda: Snooze(1, Unreadable(ValueError)), "odd notes": with_odd_notes, "causes in a circle": in_a_circle,  # type: ignore[arg-type]
    "arguments that cannot be read": lambda: ValueError(Unreadable(ValueError)),
}  # fmt: skip


@both
@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_error_is_an_error_and_counts(
    app: App, acts_with: Callable[..., Acts], desk: Desk, kind: str, name: str
) -> None:
    """It must not be taken for a fault of the worker, which would hand the job back uncounted, again and again."""
    acts = acts_with(retry=Fixed("5ms", attempts=2), deadline="5s")
    acts.words["malformed"] = raising(MALFORMED[name])
    handle = getattr(acts, kind).enqueue("malformed")
    async with working(app):
        await auntil(lambda: desk.outcomes(handle), what="an end of the first attempt")
        first = desk.job(handle)["attempts"][0]
        assert first["outcome"] in {"failed", "retrying", "snoozed"}, first
        if first["outcome"] != "snoozed":
            job = await desk.end(handle)
            assert (job["state"], job["reason"] in {"exhausted", "rejected"}) == ("failed", True)
            assert 1 <= len(acts.ran) <= 2
        await alive(acts, desk)


# --- texts ---------------------------------------------------------------------------------------------------------------


@nasty
async def test_types_locals_and_files_of_errors(app: App, acts_with: Callable[..., Acts], desk: Desk, text: str) -> None:
    acts = acts_with(retry=Fixed("5ms", attempts=1))
    kind = type("Odd", (Exception,), {"__module__": text})
    kind.__qualname__ = text
    space: dict[str, Any] = {"kind": kind}
    file = text.replace("\x00", "")[:2000].encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape") or "odd.py"
    exec(compile("def boom(local):\n    more = local\n    raise kind(local)\n", file, "exec"), space)
    acts.words["boom"] = lambda ctx, n: space["boom"](text)
    handle = acts.act.enqueue("boom")
    async with working(app):
        job = await desk.end(handle)
    assert (job["state"], job["reason"]) == ("failed", "exhausted")
    assert len(job["error_type"]) <= 200


def endless() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


RESULTS: dict[str, Callable[[], Any]] = {
    "itself": endless, "deep": lambda: nested(5000), "huge": lambda: "x" * 50_000_000, "a coroutine": lambda: asyncio.sleep, "a generator": lambda: (n for n in range(3)),
    "nan": lambda: float("nan"), "a large int": lambda: 10**5000, "an exception": lambda: ValueError("x"), "a class": lambda: int, "bytes": lambda: b"\x00\xff",
}  # fmt: skip


def nested(levels: int) -> Any:
    found: Any = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize("name", RESULTS)
async def test_odd_results_are_stored_or_noted(app: App, acts: Acts, desk: Desk, name: str) -> None:
    acts.words["odd"] = lambda ctx, n: RESULTS[name]()
    handle = acts.act.enqueue("odd")
    async with working(app):
        job = await desk.end(handle)
        await alive(acts, desk)
    assert job["state"] == "succeeded"
    assert (job["result"] is None) == bool(job["note"])
    assert len(acts.of(handle.id)) == 1


@pytest.mark.parametrize("error", [ZeroDivisionError, OSError, RecursionError, AssertionError, type("Own", (Exception,), {})])
async def test_arguments_whose_reading_raises_are_invalid(app: App, desk: Desk, error: type[Exception]) -> None:
    """A class of the user may raise anything when it is made from stored arguments."""
    from dataclasses import dataclass

    broken = False

    @dataclass
    class Order:
        number: int

        def __post_init__(self) -> None:
            if broken:
                raise error

    async def take(order: Any) -> None: ...

    take.__annotations__["order"] = Order
    task = app.task(name="take")(take)
    handle = task.enqueue(Order(1))
    broken = True
    async with working(app):
        job = await desk.end(handle)
    assert (job["state"], job["reason"], job["failures"]) == ("failed", "invalid", 0)


# --- what the store refuses ----------------------------------------------------------------------------------------------


@both
async def test_an_outcome_that_the_store_refuses_is_stored_bare_and_others_with_it_whole(
    app: App, acts: Acts, desk: Desk, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last resort: here the cleaning of texts is switched off, as if it had forgotten something."""
    monkeypatch.setattr("jobwell.core.text.clean", lambda value, limit: value)
    acts.words |= {
        "bad": raising(lambda: PermissionError("a\x00b")),
        "good": raising(lambda: PermissionError("plain")),
        "late": raising(lambda: Snooze(60, "a\x00b")),
        "again": raising(lambda: Retry("a\x00b", after=60)),
    }
    task = getattr(acts, kind)
    handles = {word: [task.enqueue(word) for _ in range(3)] for word in ("bad", "good", "late", "again", "ok")}
    async with working(app):
        for handle in (*handles["bad"], *handles["good"], *handles["ok"]):
            await desk.end(handle)
        await auntil(lambda: desk.states() == {"failed": 6, "succeeded": 3, "scheduled": 3, "retrying": 3})
    assert {desk.job(handle)["message"] for handle in handles["good"]} == {"plain"}
    assert {desk.job(handle)["error_type"] for handle in handles["bad"]} == {"Unstorable"}
    assert len(acts.ran) == 15

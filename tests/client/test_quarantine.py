"""`app.quarantine`: failed jobs looked at, retried with other arguments, and given up, from code."""

import inspect
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from psycopg import Connection, connect

from jobwell import App, Conflict, Fixed, InvalidArguments, Lock, NotFound, PayloadTooLarge, Reject, Tasks
from jobwell.core.ids import new_id
from jobwell.store import reads
from jobwell.store.statements import run
from jobwell.testing import Testbed

Conn = Connection[Any]


@dataclass
class Address:
    street: str
    number: int


async def call(what: Any, *args: Any, plain: bool, **named: Any) -> Any:
    """The sync verb, or the async one beside it."""
    verb = getattr(what[0], what[1] if plain else f"a{what[1]}")
    found = verb(*args, **named)
    return await found if inspect.isawaitable(found) else found


def declare(app: App | Tasks) -> Any:
    @app.task(name="post", tenant="firm", lock=Lock("box"), retry=Fixed("0s", attempts=1))
    def post(firm: str, box: int, to: Address, day: date = date(2030, 1, 31), copies: int = 1) -> str:
        if not to.street:
            raise Reject("no_street", "where to?")
        return f"{to.street} {to.number} {day} {copies}"

    return post


@pytest.fixture
def failed(app: App, bed: Testbed) -> Any:
    """A job that has failed for its arguments."""
    handle = declare(app).enqueue("a", 1, Address("", 7))
    bed.drain()
    return handle


both = pytest.mark.parametrize("plain", [True, False])


@both
async def test_what_has_failed_is_told(app: App, failed: Any, *, plain: bool) -> None:
    found = await call((app.quarantine, "get"), failed, plain=plain)
    assert (found.id, found.task, found.reason, found.code, found.message, found.tenant) == (
        failed.id, "post", "rejected", "no_street", "where to?", "a")  # fmt: skip
    assert (found.origin, found.edits, found.attempt, found.failures) == ("code", 0, 1, 1)
    assert found.args == {"firm": "a", "box": 1, "to": Address("", 7)}
    assert found.failed_at > found.enqueued_at


@both
async def test_it_goes_back_with_other_arguments(app: App, conn: Conn, bed: Testbed, failed: Any, *, plain: bool) -> None:
    args = {"to": Address("Main", 7), "day": date(2031, 2, 3), "copies": "2"}
    handle = await call((app.quarantine, "retry"), str(failed.id), args=args, by="olga", why="a typing error", plain=plain)
    assert (handle.id, handle.task, handle.created) == (failed.id, "post", False)
    await bed.adrain()
    assert bed.result(failed) == "Main 7 2031-02-03 2"
    (row,) = conn.execute("select actor, action, target, detail from audit").fetchall()
    assert row[:3] == ("olga", "quarantine.retry", str(failed.id))
    assert (row[3]["edited"], row[3]["why"]) == (["copies", "day", "to"], "a typing error")
    (edit,) = run(conn, reads.one(app.database.statements, failed.id))["edits"]
    assert (edit["by"], '"number":7' in edit["args"]) == ("olga", True)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"copies": "many"}, r"copies: .*valid integer.*; nothing was changed$"), ({"cpies": 2}, r"cpies is not an argument of post; .*; nothing was changed$"),
    ({"to": {"street": 7}}, r"to.*; nothing was changed$"), ({"firm": "b"}, r"the tenant of post goes by firm.*; nothing was changed$"),
    ({"box": 2}, r"the lock of post goes by box.*; nothing was changed$"), ({}, r"give at least one argument by name; nothing was changed$"),
    ({"day": object()}, r"day: "),
]  # fmt: skip


@both
@pytest.mark.parametrize(("args", "said"), WRONG, ids=["type", "name", "class", "tenant", "lock", "nothing", "no value"])
async def test_values_that_do_not_fit_are_refused_at_the_door(
    app: App, conn: Conn, failed: Any, args: dict[str, Any], said: str, *, plain: bool
) -> None:
    before = conn.execute("select to_jsonb(q)::text from quarantine q").fetchall()
    with pytest.raises(InvalidArguments, match=said) as refused:
        await call((app.quarantine, "retry"), failed, args=args, plain=plain)
    assert "enqueued" not in refused.value.message.replace("was enqueued; enqueue a new", "")
    assert conn.execute("select to_jsonb(q)::text from quarantine q").fetchall() == before
    assert conn.execute("select (select count(*) from audit) + (select count(*) from quarantine_edits)").fetchone() == (0,)


def test_too_much_is_refused(app: App, failed: Any) -> None:
    with pytest.raises(PayloadTooLarge, match="the limit is 262,144; nothing was changed"):
        app.quarantine.retry(failed, args={"to": Address("x" * 300_000, 1)})


@both
async def test_it_is_given_up_with_a_reason(app: App, conn: Conn, failed: Any, *, plain: bool) -> None:
    for why in ("", " "):
        with pytest.raises(InvalidArguments, match="say why"):
            await call((app.quarantine, "discard"), failed, why=why, plain=plain)
    await call((app.quarantine, "discard"), failed, why="sent by hand", by="olga", plain=plain)
    assert conn.execute("select state, note like 'discarded by olga: sent by hand%' from finished").fetchone() == ("failed", True)
    assert conn.execute("select actor, action, detail ->> 'why' from audit").fetchall() == [
        ("olga", "quarantine.discard", "sent by hand")
    ]
    for verb, more in (("get", {}), ("retry", {}), ("discard", {"why": "x"})):
        with pytest.raises(Conflict, match="is failed, and not in the quarantine; nothing was changed"):
            await call((app.quarantine, verb), failed, plain=plain, **more)


@both
async def test_what_is_nowhere_or_elsewhere_is_said(app: App, failed: Any, *, plain: bool) -> None:
    app.quarantine.retry(failed)
    for job, error in ((new_id(), NotFound), ("nonsense", NotFound), (failed, Conflict)):
        for verb, more in (("get", {}), ("retry", {"args": {"copies": 2}}), ("discard", {"why": "x"})):
            with pytest.raises(error):
                await call((app.quarantine, verb), job, plain=plain, **more)


def test_somebody_else_is_at_it(app: App, conn: Conn, database_url: str, failed: Any) -> None:
    with connect(database_url) as other:
        other.execute(f"select from {app.settings.schema}.quarantine for update")  # type: ignore[arg-type]  a name of ours
        for verb in (
            lambda: app.quarantine.retry(failed), lambda: app.quarantine.retry(failed, args={"copies": 2}),
            lambda: app.quarantine.discard(failed, why="x"),
        ):  # fmt: skip
            with pytest.raises(Conflict, match="somebody else is deciding"):
                verb()
    assert conn.execute("select count(*) from audit").fetchone() == (0,)


def test_a_task_that_is_not_known_here(app: App, store_settings: dict[str, Any], schema: str, failed: Any) -> None:
    """Another program: names are checked against what is stored, and values are taken as they are."""
    other = App(**store_settings, schema=schema)
    found = other.quarantine.get(failed)
    assert found.args["to"] == {"$data": [f"{__name__}.Address", {"street": "", "number": 7}]}
    with pytest.raises(InvalidArguments, match="copies is not an argument of post; it has box, firm, to"):
        other.quarantine.retry(failed, args={"copies": 2})
    other.quarantine.retry(failed, args={"box": 3})
    other.close()


def test_an_older_payload_is_held_against_the_task_as_it_is_now(app: App, bed: Testbed, conn: Conn) -> None:
    def to_2(args: dict[str, Any]) -> dict[str, Any]:
        return {"email": args["mail"]}

    @app.task(name="note", version=2, upgrades={1: to_2})
    def note(email: str) -> str:
        return email

    handle = note.enqueue("x")
    conn.execute("""update jobs set args = '{"mail": 7}'""")
    bed.drain()
    assert app.quarantine.get(handle).args == {"mail": 7}  # as it is stored: it does not fit
    with pytest.raises(InvalidArguments, match="email: Input should be a valid string; nothing was changed"):
        app.quarantine.retry(handle, args={"mail": 8})
    app.quarantine.retry(handle, args={"mail": "ann@example.org"})
    bed.drain()
    assert bed.result(handle) == "ann@example.org"

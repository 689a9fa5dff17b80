"""Retries from the quarantine at a pace and with edited arguments, and jobs that are given up."""

from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from psycopg import Connection, connect

from jobwell import App, Fixed, Lock, Reject
from jobwell.actions import jobs as actions
from jobwell.actions import triage
from jobwell.core.errors import InvalidArguments, PayloadTooLarge
from jobwell.core.filters import Selection
from jobwell.core.ids import new_id
from jobwell.store import catalog, control, quarantine, reads
from jobwell.store.statements import run
from jobwell.testing import Testbed
from tests.worker.helpers import Desk, working

Conn = Connection[Any]
BURY = """
with gone as (delete from jobs returning *)
insert into quarantine (alone, id, enqueued_at, run_at, deadline, gate, rank, attempt, failures, crashes, losses, postponements, bytes, queue,
                        task, tenant, lock_key, reason, error_type, message, fingerprint, args)
select alone, id, enqueued_at, run_at, deadline, gate, rank, 5, 5, 0, 0, 0, bytes, queue, task, tenant, lock_key, 'exhausted', 'ValueError',
       'no', task || '|ValueError', args from gone"""


def bury(conn: Conn) -> None:
    """All live jobs have failed for good."""
    conn.execute(BURY)


def publish(app: App, conn: Conn) -> None:
    from jobwell.core.published import publish as published

    specs = {spec.name: published(spec) for spec in app.catalog}
    run(conn, catalog.publish(app.database.statements, new_id(), specs, release="0"))


async def test_i3_an_exhausted_job_is_retried_with_edited_arguments(app: App, conn: Conn) -> None:
    """Case I3: a new budget, the history kept, who and when recorded, the original arguments kept."""

    @app.task(name="mail", retry=Fixed("0s", attempts=5))
    async def mail(email: str, day: date, copies: int = 1) -> str:
        if "@" not in email:
            raise ConnectionError(f"no way to {email}")
        return f"{email} {day} {copies}"

    desk = Desk(app, conn)
    handle = mail.enqueue("ann-at-example", date(2030, 1, 31))
    async with working(app):
        await desk.settled()
    assert conn.execute("select reason, attempt, failures from quarantine").fetchone() == ("exhausted", 5, 5)
    done = triage.retry(
        app.database, [handle.id], by="olga", why="a typing error", args={"email": "ann@example.org", "copies": 2}
    )
    assert (done.touched, done.refused) == (1, {})
    assert conn.execute("select failures, state, deadline - run_at from jobs").fetchone() == (0, "ready", timedelta(days=1))
    async with working(app):
        await desk.settled()
    assert await handle.aresult() == "ann@example.org 2030-01-31 2"
    shown = run(conn, reads.one(app.database.statements, handle.id))
    assert [row["outcome"] for row in shown["attempts"]] == [*["retrying"] * 4, "failed", "succeeded"]
    (edit,) = shown["edits"]
    assert (edit["by"], edit["why"], edit["args"]) == (
        "olga", "a typing error", '{"email":"ann-at-example","day":{"$date":"2030-01-31"}}')  # fmt: skip
    assert isinstance(edit["at"], datetime)
    (row,) = conn.execute("select actor, action, target, detail from audit").fetchall()
    assert row[:3] == ("olga", "quarantine.retry", str(handle.id))
    assert row[3]["edited"] == ["copies", "email"]


def test_arguments_that_stand_apart_are_edited_too(app: App, conn: Conn) -> None:
    @app.task(name="letter")
    def letter(text: str, n: int) -> None: ...

    long, brief = letter.enqueue("x" * 5000, 1).id, letter.enqueue("y", 2).id
    bury(conn)
    assert triage.retry(app.database, [long, brief], by="olga", args={"n": 3}).touched == 2
    assert conn.execute("select id, args::jsonb ->> 'n', length(args::text) > 5000 from payloads").fetchall() == [
        (long, "3", True)
    ]
    bury(conn)
    triage.retry(app.database, [long], by="olga", args={"text": "short"})
    triage.retry(app.database, [brief], by="olga", args={"text": "z" * 9000})
    rows = conn.execute("select id, args::text, bytes from jobs order by id").fetchall()
    assert [(row[0], row[1]) for row in rows] == [(long, '{"text":"short","n":3}'), (brief, None)]
    assert conn.execute("select id, length(args::text) from payloads").fetchall() == [(brief, rows[1][2])]
    kept = conn.execute("select length(args::text) > 5000 from quarantine_edits where job_id = %s order by id", [long]).fetchall()
    assert kept == [(True,), (True,)]


def test_arguments_that_do_not_fit_are_refused_and_nothing_is_done(app: App, conn: Conn) -> None:
    @app.task(name="letter", tenant="firm", lock=Lock("box"))
    def letter(firm: str, box: int, note: str = "") -> None: ...

    job = letter.enqueue("a", 1).id
    bury(conn)
    with pytest.raises(InvalidArguments, match="note is not an argument of letter; it has box, firm"):
        triage.retry(app.database, [job], by="olga", args={"note": "x"})
    publish(app, conn)
    for args, sentence in (
        ({"note": "a\x00"}, "cannot be stored"), ({"nots": 1}, "nots is not an argument"), ({"$version": 3}, "is not an argument"),
        ({"firm": "b"}, "the tenant of letter goes by firm"), ({"box": 2}, "the lock of letter goes by box"),
    ):  # fmt: skip
        with pytest.raises(InvalidArguments, match=sentence.replace("$", r"\$")):
            triage.retry(app.database, [job], by="olga", args=args)
    with pytest.raises(PayloadTooLarge):
        triage.retry(app.database, [job], by="olga", args={"note": "x" * 300_000})
    assert conn.execute("select count(*) from quarantine").fetchone() == (1,)
    assert conn.execute("select (select count(*) from audit) + (select count(*) from quarantine_edits)").fetchone() == (0,)
    assert triage.retry(app.database, [job], by="olga", args={"note": "x"}).touched == 1
    again = triage.retry(app.database, [job], by="olga", args={"note": "x"})
    assert (again.touched, list(again.refused.values())) == (0, ["it is ready: it needs no retry"])


def test_at_a_pace_each_job_waits_for_its_turn_and_none_comes_in_a_bunch(app: App, conn: Conn) -> None:
    @app.task(name="item", deadline="2h")
    def item(n: int) -> None: ...

    app.enqueue_many(item.job(n) for n in range(1200))
    bury(conn)
    total, bound = actions.preview(app.database, "quarantine.retry", Selection(task="item"))
    done = actions.many(app.database, "quarantine.retry", bound, total=total, by="olga", pace=10.0)
    assert (done.touched, done.finished) == (1200, True)
    gaps = conn.execute(
        "select min(gap), max(gap), count(*) from (select run_at - lag(run_at) over (order by run_at) as gap from jobs) g"
    ).fetchone()
    assert gaps is not None
    assert timedelta(seconds=0.099) < gaps[0] <= timedelta(seconds=0.1) <= gaps[1] < timedelta(seconds=2)
    assert conn.execute("select state, count(*), count(ready_at) from jobs group by 1 order by 1").fetchall() == [
        ("ready", 1, 1), ("scheduled", 1199, 0)]  # fmt: skip
    assert conn.execute("select min(deadline - run_at), max(deadline - run_at) from jobs").fetchone() == (timedelta(hours=2),) * 2
    (row,) = actions.latest(app.database)
    assert (row["verb"], row["state"], row["done"]) == (control.PACED, "done", 1200)  # an older release leaves it alone


def test_a_paced_action_left_in_the_middle_goes_on_behind_its_last_turn(app: App, conn: Conn) -> None:
    @app.task(name="item")
    def item(n: int) -> None: ...

    app.enqueue_many(item.job(n) for n in range(700))
    bury(conn)
    total, bound = actions.preview(app.database, "quarantine.retry", Selection(task="item"))
    begin = control.begin(app.database.statements, "quarantine.retry", bound, actor="olga", why=None, total=total, pace=1.0)
    action = run(conn, begin)
    with conn.transaction():
        assert run(conn, control.step(app.database.statements, action)) == (500, False)
    (last,) = conn.execute("select max(run_at) from jobs").fetchone() or (None,)
    assert actions.resume(app.database, action).touched == 200
    assert conn.execute("select min(run_at) - %s from jobs where run_at > %s", [last, last]).fetchone() == (timedelta(seconds=1),)


def test_named_jobs_go_back_at_a_pace_too(app: App, conn: Conn) -> None:
    @app.task(name="item")
    def item(n: int) -> None: ...

    jobs = [item.enqueue(n).id for n in range(3)]
    bury(conn)
    assert triage.retry(app.database, jobs, by="olga", pace=0.5).touched == 3
    assert conn.execute("select max(run_at) - min(run_at) from jobs").fetchone() == (timedelta(seconds=4),)
    for wrong in (0.0, -1.0, 1e9, float("nan")):
        with pytest.raises(InvalidArguments, match="pace"):
            triage.retry(app.database, jobs, by="olga", pace=wrong)


def test_a_deadline_does_not_grow_by_the_waits_for_turns(app: App, conn: Conn) -> None:
    """It counts from the turn, and is as long in each retry, paced or not, as it was first."""

    @app.task(name="item", deadline="2h")
    def item(n: int) -> None: ...

    jobs = [item.enqueue(n).id for n in range(3)]
    for pace in (0.01, None, 0.01, 0.01, None):
        bury(conn)
        assert triage.retry(app.database, jobs, by="olga", pace=pace).touched == 3
        found = conn.execute("select run_at - enqueued_at, deadline - run_at from jobs order by run_at").fetchall()
        assert [wait for wait, _ in found] == [timedelta(seconds=100 * n if pace else 0) for n in range(3)]
        assert [length for _, length in found] == [timedelta(hours=2)] * 3
    bury(conn)
    total, bound = actions.preview(app.database, "quarantine.retry", Selection(task="item"))
    actions.many(app.database, "quarantine.retry", bound, total=total, by="olga", pace=0.01)
    bury(conn)
    actions.many(app.database, "quarantine.retry", replace(bound, until=None), total=3, by="olga")
    assert conn.execute("select distinct deadline - run_at from jobs").fetchall() == [(timedelta(hours=2),)]


def test_a_paced_job_that_fails_in_its_turn_has_as_long_as_any_other(app: App, bed: Testbed) -> None:
    """The whole way round: it waits for its turn, runs past its first deadline, fails there, and is retried."""

    @app.task(name="item", deadline="1h", retry=Fixed("0s", attempts=1))
    def item(n: int) -> None:
        raise ConnectionError

    jobs = [item.enqueue(n).id for n in range(2)]
    bed.drain()
    assert triage.retry(app.database, jobs, by="olga", pace=0.0002).touched == 2
    assert bed.drain().counts == {"failed": 1}
    bed.clock.travel("83m")  # past the deadline that a retry without a pace would have had
    assert not bed.drain()
    bed.clock.travel("1m")
    assert bed.drain().counts == {"failed": 1}
    assert [job.reason for job in bed.quarantined()] == ["exhausted"] * 2
    triage.retry(app.database, jobs, by="olga")
    assert all(timedelta(minutes=59) < job.deadline - bed.clock.now() <= timedelta(hours=1) for job in bed.jobs() if job.deadline)


def test_a_group_goes_back_with_other_arguments_by_a_durable_action(app: App, conn: Conn) -> None:
    """Also where its driver dies in the middle, and at a pace; the originals are kept, and who and why is said of each piece."""

    @app.task(name="send")
    def send(n: int, server: str = "mail1") -> None: ...

    app.enqueue_many(send.job(n, "mail1") for n in range(700))
    long = send.enqueue(700, "m" * 5000).id
    bury(conn)
    total, bound = actions.preview(app.database, "quarantine.retry", Selection(task="send"))
    edit = actions.check_edit(app.database, bound, {"server": "mail2"})
    begin = control.begin(
        app.database.statements, "quarantine.retry", bound, actor="olga", why="mail1 is gone", total=total, edit=edit, pace=100.0
    )
    action = run(conn, begin)
    assert conn.execute("select verb from bulk_actions").fetchone() == (control.EDITED,)  # an older release leaves it alone
    with conn.transaction():
        assert run(conn, control.step(app.database.statements, action)) == (500, False)
    assert actions.resume(app.database, action).touched == 201
    edited = conn.execute("select count(*), count(distinct run_at) from jobs where args ->> 'server' = 'mail2'").fetchone()
    assert edited == (701, 701)
    assert conn.execute("select count(*) from payloads").fetchone() == (0,)  # the long one is short now
    assert conn.execute("select count(*), count(distinct actor), min(why) from quarantine_edits").fetchone() == (
        701, 1, "mail1 is gone")  # fmt: skip
    assert conn.execute("select length(args ->> 'server') from quarantine_edits where job_id = %s", [long]).fetchone() == (5000,)
    rows = conn.execute("select action, detail -> 'edited' from audit order by id").fetchall()
    assert rows == [("quarantine.retry.begin", ["server"]), *[("quarantine.retry", ["server"])] * 2]


def test_where_one_of_a_choice_does_not_take_the_arguments_nothing_is_changed(app: App, conn: Conn) -> None:
    @app.task(name="send")
    def send(n: int, server: str = "mail1") -> None: ...

    @app.task(name="other", tenant="server")
    def other(server: str) -> None: ...

    app.enqueue_many(send.job(n, "mail1") for n in range(600))
    bury(conn)
    publish(app, conn)
    other.enqueue("x")
    bury(conn)
    total, bound = actions.preview(app.database, "quarantine.retry", Selection())
    before = conn.execute("select id, args::text from quarantine order by id").fetchall()
    tries: list[tuple[Selection, dict[str, Any], dict[str, Any], str]] = [
        (bound, {"server": "mail2"}, {}, "the tenant of other goes by server"), (bound, {"n": 1}, {}, "n is not an argument of other"),
        (replace(bound, task="send"), {"n": "many"}, {"code": app.catalog.get}, r"send: n: .*valid integer.*; nothing was changed"),
        (replace(bound, task="send"), {}, {}, "at least one argument"), (replace(bound, task="send"), {"server": "a\x00"}, {}, "cannot be stored"),
    ]  # fmt: skip
    for chosen, args, code, said in tries:
        with pytest.raises(InvalidArguments, match=said):
            actions.many(app.database, "quarantine.retry", chosen, total=total, by="olga", args=args, **code)
    with pytest.raises(InvalidArguments, match="takes neither a pace nor arguments"):
        actions.many(app.database, "quarantine.discard", bound, total=total, by="olga", why="x", args={"server": "x"})
    with pytest.raises(InvalidArguments, match="valid integer"):
        triage.retry(app.database, [before[0][0]], by="olga", args={"n": "many"}, code=app.catalog.get)
    assert conn.execute("select id, args::text from quarantine order by id").fetchall() == before
    assert conn.execute("select (select count(*) from audit) + (select count(*) from bulk_actions)").fetchone() == (0,)
    done = actions.many(
        app.database, "quarantine.retry", replace(bound, task="send"), total=600, by="olga", args={"n": 7}, code=app.catalog.get
    )
    assert done.touched == 600
    assert conn.execute("select count(*) from jobs where args ->> 'n' = '7' and state = 'ready'").fetchone() == (600,)


def test_a_job_that_takes_the_arguments_no_more_stays_and_holds_nobody_up(app: App, conn: Conn) -> None:
    """Between the look and the deed: its task was published anew."""

    @app.task(name="send")
    def send(server: str) -> None: ...

    jobs = [send.enqueue("mail1").id for _ in range(3)]
    bury(conn)
    edit = actions.check_edit(app.database, Selection(), {"server": "mail2"})
    begin = control.begin(app.database.statements, "quarantine.retry", Selection(), actor="olga", why=None, total=3, edit=edit)
    action = run(conn, begin)
    conn.execute("""update quarantine set args = '{"mail": "mail1"}' where id = %s""", [jobs[1]])
    assert actions.resume(app.database, action).touched == 2
    assert conn.execute("select id, args::text from quarantine").fetchall() == [(jobs[1], '{"mail": "mail1"}')]


async def test_jobs_are_given_up_with_a_reason_by_a_durable_action(app: App, conn: Conn) -> None:
    @app.task(name="item")
    async def item(n: int) -> None:
        raise Reject("bad", f"no {n}")

    desk = Desk(app, conn)
    app.enqueue_many(item.job(n) for n in range(20))
    async with working(app):
        await desk.settled()
    total, bound = actions.preview(
        app.database, "quarantine.discard", Selection(fingerprint=triage.named(app.database, group(app)))
    )
    for why in (None, " "):
        with pytest.raises(InvalidArguments, match="say why"):
            actions.many(app.database, "quarantine.discard", bound, total=total, by="olga", why=why)
    done = actions.many(app.database, "quarantine.discard", bound, total=total, by="olga", why="over")
    assert (done.touched, done.finished) == (20, True)
    assert conn.execute("select state, count(*) from finished group by 1").fetchall() == [("failed", 20)]
    (job,) = conn.execute("select id from finished limit 1").fetchone() or (new_id(),)
    late = actions.named(app.database, "quarantine.discard", [job], by="olga", why="over")
    assert list(late.refused.values()) == ["it is failed, and not in the quarantine"]
    assert conn.execute("select action, detail ->> 'why' from audit order by id limit 1").fetchone() == (
        "quarantine.discard.begin", "over")  # fmt: skip


def test_a_job_that_somebody_else_holds_is_not_let_go_with_its_old_arguments(
    app: App, conn: Conn, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is free again when the retry comes, and was not edited."""

    @app.task(name="mail")
    def mail(email: str) -> None: ...

    job = mail.enqueue("wrong").id
    bury(conn)
    holder = connect(database_url)
    holder.execute(f"select from {app.settings.schema}.quarantine for update")  # type: ignore[arg-type]  a name of ours
    before = quarantine.retry

    def retry(*given: Any, **more: Any) -> Any:
        holder.rollback()
        return before(*given, **more)

    monkeypatch.setattr(quarantine, "retry", retry)
    done = triage.retry(app.database, [job], by="olga", args={"email": "right"})
    holder.close()
    assert (done.touched, list(done.refused)) == (0, [job])
    assert conn.execute("select count(*) from quarantine").fetchone() == (1,)


@pytest.mark.parametrize("pace", [0.0, -1.0, 1e-9, float("nan"), float("inf")])
def test_what_is_no_pace_is_refused_before_anything_is_begun(app: App, conn: Conn, pace: float) -> None:
    with pytest.raises(InvalidArguments, match="nothing was done"):
        actions.many(app.database, "quarantine.retry", Selection(), total=1, by="olga", pace=pace)
    assert conn.execute("select count(*) from bulk_actions").fetchone() == (0,)


def group(app: App) -> str:
    """The name of the only group."""
    (row,) = triage.groups(app.database, Selection())
    return str(row["group"])

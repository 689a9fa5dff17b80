"""Subscriptions to reports on failed jobs: made, listed, paused, tried out and ended. Workers do the sending."""

import time as clock
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import time
from typing import Any

from jobwell.actions.report import check_owner
from jobwell.core import subscription as core
from jobwell.core.errors import Conflict, InvalidArguments
from jobwell.core.report import Wanted
from jobwell.core.subscription import Subscription
from jobwell.store import audit, control, quarantine, subscriptions
from jobwell.store.database import Database
from jobwell.store.statements import Program, run

PATIENCE = 30.0  # seconds for a worker to take a test up
SENDING = 300.0  # seconds for it to be through with it
LOOK = 0.5


def add(
    database: Database,
    wanted: Wanted,
    *,
    recipients: Sequence[str],
    by: str,
    form: str = "csv",
    daily: time | None = None,
    zone: str = "UTC",
    threshold: int | None = None,
    within: float | None = None,
    even_empty: bool = False,
    why: str | None = None,
) -> Subscription:
    """Have a report sent by workers that have a way to send; with an audit row. What has failed before is no part of it.

    Args:
        database: the store.
        wanted: which failed jobs, and by what they are grouped. A fingerprint may be a group's short name.
        recipients: addresses of mail; what has no @ is for the hook of an app.
        by: who makes it.
        form: of the list that is attached: csv, xlsx, html or json.
        daily: at this time of the day.
        zone: in this zone, by its IANA name; also of the times that the report tells.
        threshold: when so many have failed …
        within: … within so many seconds; at most once in this time.
        even_empty: a daily one also where nothing has failed.
        why: the reason; it stands in the report.

    Raises:
        InvalidArguments: it cannot work. Nothing was done.
        NotFound: nobody knows the owner or the group.
    """
    recipients = list(dict.fromkeys(recipients))
    core.check(recipients=recipients, form=form, daily=daily, zone=zone, threshold=threshold, within=within)
    if even_empty and daily is None:
        raise InvalidArguments("an empty report is for a daily one: at a threshold something has failed", "even_empty")
    check_owner(database, wanted.owner)
    statements = database.statements
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        if wanted.fingerprint:
            wanted = replace(wanted, fingerprint=run(conn, quarantine.named(statements, wanted.fingerprint)))
        now = run(conn, control.now(statements))
        next_daily = None if daily is None else core.next_at(now, daily, zone)
        look_at = now if next_daily is None or threshold else next_daily
        added = subscriptions.add(
            statements, wanted, form=form, recipients=recipients, even_empty=even_empty, daily=daily, zone=zone,
            threshold=threshold, within=within, next_daily=next_daily, look_at=look_at, actor=by, why=why,
        )  # fmt: skip
        made = run(conn, subscriptions.one(statements, run(conn, added)))
        detail = {"what": made.what(), "when": made.when(), "to": recipients, "form": form, "why": why}
        run(conn, audit.record(statements, actor=by, action="reports.subscribe", target=str(made.id), detail=detail))
    return made


def listed(database: Database) -> list[Subscription]:
    """All there are."""
    return database.run(subscriptions.all_(database.statements))


def warnings(database: Database) -> list[str]:
    """What is wrong with some of them, in sentences."""
    found = []
    for sub in listed(database):
        name = f"the reports of subscription {sub.id} ({sub.what()}, to {', '.join(sub.recipients)})"
        if sub.state == "overdue":
            found.append(f"{name} are overdue: no live worker can send them; one needs smtp_url, or a hook (@app.on_report)")
        elif sub.state == "failing":
            found.append(f"{name} do not go through: {sub.last_error}")
    return found


def one(database: Database, id: int) -> Subscription:
    """One of them.

    Raises:
        NotFound: there is none of this number.
    """
    return database.run(subscriptions.one(database.statements, id))


def log(database: Database, id: int) -> list[dict[str, Any]]:
    """What was sent for it lately, the newest first."""
    return database.run(subscriptions.log(database.statements, id))


def remove(database: Database, id: int, *, by: str, why: str | None = None) -> Subscription:
    """End it, with an audit row. A report that is being sent at this moment still arrives.

    Returns:
        As it was.

    Raises:
        NotFound: there is none of this number.
    """
    return _turn(database, id, "reports.unsubscribe", subscriptions.remove(database.statements, id), by=by, why=why)


def pause(database: Database, id: int, *, by: str, why: str | None = None) -> Subscription:
    """Send nothing for it until `resume`; with an audit row.

    Raises:
        NotFound: there is none of this number.
        Conflict: it is paused already.
    """
    return _turn(database, id, "reports.pause", subscriptions.pause(database.statements, id, actor=by), by=by, why=why)


def resume(database: Database, id: int, *, by: str, why: str | None = None) -> Subscription:
    """Go on with it; with an audit row. The next daily report has what failed meanwhile.

    Raises:
        NotFound: there is none of this number.
        Conflict: it is not paused.
    """
    return _turn(database, id, "reports.resume", subscriptions.resume(database.statements, id), by=by, why=why)


def try_out(
    database: Database, id: int, *, by: str, patience: float = PATIENCE, told: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Have a worker send it now, with the last day's failures, as it would at its time; with an audit row. Nothing else moves.

    Args:
        database: the store.
        id: of the subscription; a paused one, too.
        by: who asks.
        patience: seconds for a worker to take it up.
        told: what is being waited for.

    Returns:
        The row of the log; its `error` says what went wrong.

    Raises:
        NotFound: there is none of this number.
        Conflict: no worker that can send has taken it up.
    """
    statements = database.statements
    with database.connect("actions") as conn, database.telling():
        with conn.transaction():
            sub = run(conn, subscriptions.one(statements, id))
            after = run(conn, subscriptions.ask(statements, id, actor=by))
            detail = {"to": list(sub.recipients)}
            run(conn, audit.record(statements, actor=by, action="reports.test", target=str(id), detail=detail))
        told("waiting for a worker that can send")
        begun = clock.monotonic()
        while True:
            rows = [row for row in run(conn, subscriptions.log(statements, id, after=after)) if row["kind"] == "test"]
            if rows:
                return rows[-1]
            waited = clock.monotonic() - begun
            if waited > SENDING or (waited > patience and run(conn, subscriptions.unask(statements, id))):
                raise Conflict(
                    f"no worker has sent it within {waited:.0f} s;"
                    " it needs a live one with the setting smtp_url, or with a hook (@app.on_report)"
                )
            clock.sleep(LOOK)


def _turn(database: Database, id: int, action: str, program: Program[bool], *, by: str, why: str | None) -> Subscription:
    statements = database.statements
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        sub = run(conn, subscriptions.one(statements, id))
        if not run(conn, program):
            raise Conflict(
                f"subscription {id} is {'paused already' if action == 'reports.pause' else 'not paused'}; nothing was done"
            )
        detail = {"what": sub.what(), "when": sub.when(), "to": list(sub.recipients), "why": why}
        run(conn, audit.record(statements, actor=by, action=action, target=str(id), detail=detail))
    return sub

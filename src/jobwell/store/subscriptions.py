"""Subscriptions to reports: kept by people, leased by the worker that sends one, and what was sent."""

from collections.abc import Mapping, Sequence
from datetime import datetime, time
from typing import Any
from uuid import UUID

import orjson

from jobwell.core.errors import NotFound
from jobwell.core.report import Wanted
from jobwell.core.subscription import Period, Subscription, read_filters
from jobwell.core.text import check_storable, clean
from jobwell.store import report
from jobwell.store.statements import Program, Row, Statements

KEPT = 180  # days of the log
LONGEST_ERROR = 500
LOG_COLUMNS = ("id", "at", "kind", "since", "until", "jobs", "recipients", "worker", "error")


# --- what people do --------------------------------------------------------------------------------------------------


def add(
    statements: Statements,
    wanted: Wanted,
    *,
    form: str,
    recipients: Sequence[str],
    even_empty: bool,
    daily: time | None,
    zone: str,
    threshold: int | None,
    within: float | None,
    next_daily: datetime | None,
    look_at: datetime,
    actor: str,
    why: str | None,
) -> Program[int]:
    """Make one. Returns its number."""
    check_storable(by=actor, why=why)
    rows = yield statements(
        "subscriptions.add", filters=report.stored(wanted), group_by=wanted.group_by, form=form, recipients=list(recipients),
        even_empty=even_empty, daily=daily, zone=zone, threshold=threshold, within=within, actor=actor, why=why,
        next_daily=next_daily, look_at=look_at,
    )  # fmt: skip
    return int(rows[0][0])


def all_(statements: Statements) -> Program[list[Subscription]]:
    """All there are."""
    rows = yield statements("subscriptions.list", id=None)
    return [_read(row) for row in rows]


def one(statements: Statements, id: int) -> Program[Subscription]:
    """One of them.

    Raises:
        NotFound: there is none of this number.
    """
    rows = yield statements("subscriptions.list", id=id)
    if not rows:
        raise NotFound(f"there is no subscription {id}; `jobwell quarantine subscriptions` lists them")
    return _read(rows[0])


def remove(statements: Statements, id: int) -> Program[bool]:
    """End one. False: it is not there."""
    return bool((yield statements("subscriptions.remove", id=id)))


def pause(statements: Statements, id: int, *, actor: str) -> Program[bool]:
    """Send nothing for it. False: it is paused already, or not there."""
    return bool((yield statements("subscriptions.pause", id=id, actor=actor)))


def resume(statements: Statements, id: int) -> Program[bool]:
    """Go on. False: it is not paused, or not there."""
    return bool((yield statements("subscriptions.resume", id=id)))


def ask(statements: Statements, id: int, *, actor: str) -> Program[int]:
    """Have one sent as a test by a worker. Returns the entry of the log behind which the answer will stand."""
    rows = yield statements("subscriptions.ask", id=id, actor=actor)
    if not rows:
        raise NotFound(f"there is no subscription {id} any more")
    return int(rows[0][0])


def unask(statements: Statements, id: int) -> Program[bool]:
    """Do without the test. False: a worker is at it, or has done it."""
    return bool((yield statements("subscriptions.unask", id=id)))


def log(statements: Statements, id: int, *, after: int = 0, limit: int = 20) -> Program[list[dict[str, Any]]]:
    """What was sent for it, the newest first."""
    rows = yield statements("subscriptions.log", id=id, after=after, limit=limit)
    return [dict(zip(LOG_COLUMNS, row, strict=True)) for row in rows]


# --- what workers do -------------------------------------------------------------------------------------------------


def take(statements: Statements, claim: UUID, *, lease: float, hook: bool) -> Program[Subscription | None]:
    """Lease one that is due.

    Args:
        statements: of the store.
        claim: made for this, and never used twice.
        lease: seconds after which another one may take it.
        hook: whether there is one here: for recipients that mail does not reach.
    """
    rows = yield statements("subscriptions.take", claim=claim, lease=lease, hook=hook)
    return _read(rows[0]) if rows else None


def begin(statements: Statements, sub: Subscription, claim: UUID, period: Period) -> Program[bool]:
    """Write down what is about to be sent. False: the lease is lost."""
    rows = yield statements(
        "subscriptions.begin", id=sub.id, claim=claim, kind=period.kind, since=period.since, until=period.until
    )
    return bool(rows)


def settle(
    statements: Statements,
    sub: Subscription,
    claim: UUID,
    marks: Mapping[str, datetime | None],
    *,
    period: Period | None,
    sent: bool,
    jobs: int,
    worker: UUID,
    error: str | None = None,
) -> Program[bool]:
    """It is through, or there was nothing to send. False: the lease is lost, and somebody else may send it too.

    Args:
        statements: of the store.
        sub: as it was taken.
        claim: of the lease.
        marks: how far it is now.
        period: what was due, if anything.
        sent: whether something was sent.
        jobs: in the report.
        worker: who did it.
        error: recipients that were refused.
    """
    rows = yield statements(
        "subscriptions.settle", id=sub.id, claim=claim, **marks, sent=sent, jobs=jobs, worker=worker, days=KEPT,
        error=_error(error), kind=period.kind if period else None, since=period.since if period else None,
        until=period.until if period else None,
    )  # fmt: skip
    return bool(rows)


def fail(
    statements: Statements, sub: Subscription, claim: UUID, error: str, *, pause: float, done: Sequence[str]
) -> Program[bool]:
    """It did not go through; it is tried again after the pause, for those who do not have it yet."""
    rows = yield statements(
        "subscriptions.fail", id=sub.id, claim=claim, error=_error(error), pause=pause, done=list(done)
    )  # fmt: skip
    return bool(rows)


def tested(
    statements: Statements, sub: Subscription, claim: UUID, period: Period, *, jobs: int | None, worker: UUID, error: str | None
) -> Program[bool]:
    """How a test went."""
    rows = yield statements(
        "subscriptions.tested", id=sub.id, claim=claim, since=period.since, until=period.until, jobs=jobs, worker=worker,
        error=_error(error),
    )  # fmt: skip
    return bool(rows)


def _error(said: str | None) -> str | None:
    return None if said is None else clean(said, LONGEST_ERROR)


def _read(row: Row) -> Subscription:
    (
        id, filters, group_by, form, recipients, even_empty, daily, zone, threshold, within, made_at, made_by, why, paused_at,
        paused_by, daily_since, told_until, alarmed_at, next_daily, look_at, kind, since, until, done, failures, last_error,
        last_error_at, last_sent, test_asked, test_by, now,
    ) = row  # fmt: skip
    return Subscription(
        id=id, wanted=read_filters(orjson.loads(filters), group_by), form=form, recipients=tuple(recipients),
        even_empty=even_empty, daily=daily, zone=zone, threshold=threshold, within=within, made_at=made_at, made_by=made_by,
        why=why, paused_at=paused_at, paused_by=paused_by, daily_since=daily_since, told_until=told_until, alarmed_at=alarmed_at,
        next_daily=next_daily, look_at=look_at, pending=None if kind is None else Period(kind, since, until), done=tuple(done),
        failures=failures, last_error=last_error, last_error_at=last_error_at, last_sent=last_sent, test_asked=test_asked,
        test_by=test_by, now=now,
    )  # fmt: skip

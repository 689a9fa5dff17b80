"""Actions on limits and holds: other values for a time, and tasks, queues, resources and tenants that are held."""

import difflib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, get_args
from uuid import UUID

from jobwell.actions import queues
from jobwell.core.errors import Conflict, DeclarationError, NotFound
from jobwell.core.limits import EVERYBODY, KINDS, PERS, Kind, Per, Rate, check_concurrency, check_weight
from jobwell.core.task import STANDARD_QUEUES
from jobwell.store import audit, catalog, control
from jobwell.store import limits as store
from jobwell.store.database import Database
from jobwell.store.statements import Program, Statements, run

SOON = timedelta(days=1)  # how far a hold without an end is looked ahead
OLD_HOLD, OLD_SET = timedelta(days=1), timedelta(days=7)


@dataclass(frozen=True)
class Delay:
    """What a hold would delay.

    Attributes:
        waiting: jobs that would start before `by`; late: those among them whose deadline would pass until then.
        first: the first such deadline.
        by: the end of the hold; where it has none, a day from now.
        more: the counts stopped at 100,000.
    """

    kind: Kind
    name: str
    waiting: int
    late: int
    first: datetime | None
    by: datetime
    more: bool


def find(database: Database, name: str, kind: Kind | None = None) -> tuple[Kind, str]:
    """What is meant: "sms-gateway", or "resource:sms-gateway" where that could be several things.

    Args:
        database: the store.
        name: of a task, queue, resource or tenant; "tenant:*" is each tenant that is not named.
        kind: which of them.

    Raises:
        NotFound: nobody knows such a thing; with the nearest name.
        Conflict: it is several.
    """
    head, _, rest = name.partition(":")
    if kind is None and head in KINDS and rest:
        kind, name = next(one for one in get_args(Kind) if one == head), rest
    with database.connect("actions") as conn, database.telling():
        if kind is not None:
            run(conn, _check(database.statements, kind, [name], everybody=True))
            return kind, name
        names = {one: run(conn, _known(database.statements, one)) for one in get_args(Kind)}
        found: list[Kind] = [one for one in names if name in names[one]]
        if not found and run(conn, store.tenant_seen(database.statements, name)):
            found = ["tenant"]
    if len(found) > 1:
        what = " and ".join(f"a {one}" for one in found)
        raise Conflict(f"{name!r} is {what}; say which: {' or '.join(f'{one}:{name}' for one in found)}")
    if not found:
        raise _nobody("task, queue, resource or tenant", name, {each for some in names.values() for each in some})
    return found[0], name


def put(
    database: Database,
    kind: Kind,
    name: str,
    change: Mapping[str, Any],
    *,
    by: str,
    why: str,
    per: Per = "fleet",
    until: datetime | None = None,
) -> dict[str, Any]:
    """Set values that go before those from code, from the next claim on, in every worker, across restarts and deploys.

    Args:
        database: the store.
        kind: of thing.
        name: of it, as `find` gives it.
        change: any of `concurrency` (jobs, or None), `rates` (of `Rate`; none: no rate) and `weight` (of a tenant). What
            is not in it stays as it is.
        by: who acts.
        why: the reason, shown wherever the limit is.
        per: what it is counted for.
        until: the values from code count again then, by themselves.

    Returns:
        The limit as it is now, as in `listed`.

    Raises:
        DeclarationError: a value is out of range, or nothing is changed.
        NotFound: nobody knows such a thing.
    """
    _check_change(kind, per, change)
    rates: Sequence[Rate] = tuple(change.get("rates") or ())
    override = {key: value for key, value in change.items() if key != "rates"}
    if "rates" in change:
        override["rates"] = [rate.stored() for rate in rates] or None
    detail = {"per": per, **override, "why": why, "until": until}
    if "rates" in change:
        detail["rates"] = [str(rate) for rate in rates]
    statements = database.statements
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        run(conn, _check(statements, kind, [name], everybody=True))
        run(conn, store.put(statements, kind, name, per, override, actor=by, why=why, until=until))
        run(conn, audit.record(statements, actor=by, action="limits.set", target=f"{kind}:{name}", detail=detail))
        rows = run(conn, store.listed(statements, kind=kind, name=name))
    return next(readable(row) for row in rows if row["per"] == per)


def clear(database: Database, kind: Kind, name: str, *, by: str, per: Per | None = None) -> list[str]:
    """Let the values from code count again.

    Args:
        database: the store.
        kind: of thing.
        name: of it.
        by: who acts.
        per: only of this one (default: all).

    Returns:
        For which `per` anything had been set.
    """
    statements = database.statements
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        cleared = run(conn, store.clear(statements, kind, name, per))
        if cleared:
            detail = {"per": cleared}
            run(conn, audit.record(statements, actor=by, action="limits.clear", target=f"{kind}:{name}", detail=detail))
    return cleared


def listed(database: Database, *, kind: Kind | None = None, name: str | None = None) -> list[dict[str, Any]]:
    """Every limit: what counts now, what code says, who set what, how many jobs use it."""
    return [readable(row) for row in database.run(store.listed(database.statements, kind=kind, name=name))]


def on(database: Database, kind: Kind, name: str) -> list[dict[str, Any]]:
    """What counts for one thing, as in `listed`: of a tenant without a limit of its own, that of each that is not named ("*")."""
    rows = listed(database, kind=kind, name=name)
    if kind == "tenant" and name != EVERYBODY and not any(row["rate"] or row["concurrency"] is not None for row in rows):
        rows += listed(database, kind=kind, name=EVERYBODY)
    return rows


def uses(database: Database, kind: Kind, name: str) -> tuple[int, float, list[UUID]]:
    """How many jobs use a limit of the whole fleet, seconds until its rates let the next one in, and the first few jobs."""
    return database.run(store.uses(database.statements, kind, name))


def preview(database: Database, kind: Kind, names: Sequence[str], *, until: datetime | None = None) -> list[Delay]:
    """What a hold would delay, for each of the names.

    Raises:
        NotFound: nobody knows such a thing.
    """
    statements = database.statements
    with database.connect("actions") as conn, database.telling():
        run(conn, _check(statements, kind, names))
        by = until or run(conn, control.now(statements)) + SOON
        found = []
        for name in names:
            waiting, late, first = run(conn, store.delays(statements, kind, name, by))
            found.append(Delay(kind, name, waiting, late, first if first and first <= by else None, by, waiting >= store.CAP))
    return found


def hold(
    database: Database, kind: Kind, names: Sequence[str], *, by: str, why: str | None = None, until: datetime | None = None
) -> list[str]:
    """Hold tasks, queues, resources or tenants: none of their jobs is claimed, from the next claim on. What runs goes on.

    Args:
        database: the store.
        kind: of things.
        names: of them; of queues "*" is all.
        by: who acts.
        why: the reason, shown wherever the hold is.
        until: resume by itself then.

    Returns:
        What is held now because of this.

    Raises:
        NotFound: nobody knows such a thing.
    """
    if kind == "queue":
        return queues.pause(database, names, by=by, why=why, until=until)
    statements = database.statements
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        run(conn, _check(statements, kind, names))
        held = run(conn, store.hold(statements, kind, names, actor=by, why=why, until=until))
        detail = {"why": why, "until": until}
        run(conn, audit.record(statements, actor=by, action=f"{kind}s.pause", target=", ".join(held), detail=detail))
    return held


def release(database: Database, kind: Kind, names: Sequence[str], *, by: str, everything: bool = False) -> list[str]:
    """Let them go on.

    Returns:
        Those that were held.

    Raises:
        NotFound: nobody knows such a thing.
    """
    if kind == "queue":
        return queues.resume(database, names, by=by, everything=everything)
    statements = database.statements
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        run(conn, _check(statements, kind, names))
        freed = run(conn, store.release(statements, kind, names, everything=everything))
        if freed:
            run(conn, audit.record(statements, actor=by, action=f"{kind}s.resume", target=", ".join(freed)))
    return freed


def held(database: Database) -> list[dict[str, Any]]:
    """Everything that is held now; the queue "*" stands for all queues."""
    return database.run(holds(database.statements))


def holds(statements: Statements) -> Program[list[dict[str, Any]]]:
    """The same, as a program."""
    paused = yield from control.held(statements)
    rows = [
        {
            "kind": "queue", "name": row["queue"],
            **{f"held_{what}": row[f"paused_{what}"] for what in ("at", "by", "why", "until")},
        }
        for row in paused
    ]  # fmt: skip
    return rows + (yield from store.held(statements))


def forgotten(database: Database) -> list[str]:
    """Holds without an end that are older than a day, and limits set without an end more than a week ago, in words."""
    statements = database.statements
    with database.connect("actions") as conn, database.telling():
        now = run(conn, control.now(statements))
        old = [row for row in run(conn, holds(statements)) if row["held_until"] is None and now - row["held_at"] > OLD_HOLD]
        rows = [row for row in run(conn, store.listed(statements, only_set=True)) if row["set_until"] is None]
    return [_old_hold(row, now) for row in old] + [_old_limit(row, now) for row in rows if now - row["set_at"] > OLD_SET]


def _old_hold(row: dict[str, Any], now: datetime) -> str:
    since = f"the {row['kind']} {row['name']!r} has been held for {(now - row['held_at']).days} day(s) by {row['held_by']}"
    return f"{since}, without an end; `jobwell resume {row['kind']} {shlex.quote(row['name'])}` lets it go on"


def _old_limit(row: dict[str, Any], now: datetime) -> str:
    since = f"the limit of the {row['kind']} {row['name']!r} was set {(now - row['set_at']).days} days ago by {row['set_by']}"
    clear = f"`jobwell limits clear {shlex.quote(row['kind'] + ':' + row['name'])}`"
    return f"{since}, without an end; write it into the code, or {clear}"


def readable(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `store.limits.listed` for people and programs: rates as they are written."""
    found = {key: value for key, value in row.items() if key not in ("rates", "code_rates", "override", "set_counts")}
    if not row["set_counts"]:
        found.update(set_at=None, set_by=None, set_why=None, set_until=None)
    return {**found, "rate": store.written(row["rates"]), "code_rate": store.written(row["code_rates"])}


def _check_change(kind: Kind, per: Per, change: Mapping[str, Any]) -> None:
    if not change:
        raise DeclarationError("nothing is changed; give a concurrency, a rate or a weight")
    check_concurrency(change.get("concurrency"))
    if change.get("weight") is not None:
        check_weight(change["weight"])
    if "weight" in change and (kind, per) != ("tenant", "fleet"):
        raise DeclarationError("a weight is for a tenant in the whole fleet")
    if kind == "tenant" and per == "tenant":
        raise DeclarationError("per='tenant' is what a tenant's limit is already; leave it out")
    if kind == "tenant" and per != "fleet":
        raise DeclarationError(f"per={per!r} does not go here; a tenant is counted in the whole fleet")
    if per not in PERS:
        raise DeclarationError(f"per={per!r} must be one of {', '.join(map(repr, PERS))}")


def _known(statements: Statements, kind: Kind) -> Program[set[str]]:
    names = set((yield from store.known(statements, kind)))
    if kind == "queue":
        names |= {*STANDARD_QUEUES, *(yield from control.queues(statements))}
    elif kind == "task":
        names |= set((yield from catalog.names(statements)))
    return names


def _check(statements: Statements, kind: Kind, names: Iterable[str], *, everybody: bool = False) -> Program[None]:
    known = yield from _known(statements, kind)
    for name in names:
        if name in known or (kind == "queue" and name == control.ALL and not everybody):
            continue
        if kind == "tenant" and ((everybody and name == EVERYBODY) or (yield from store.tenant_seen(statements, name))):
            continue
        raise _nobody(kind, name, known)


def _nobody(what: str, name: str, known: Iterable[str]) -> NotFound:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    some = ", ".join(sorted(known)[:20]) or "none yet"
    return NotFound(f"nobody knows the {what} {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"there are {some}"))

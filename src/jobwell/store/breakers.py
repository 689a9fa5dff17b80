"""Circuit breakers: what calls told, how they stand, and each change of state, decided once."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from jobwell.core.breaker import Guard, Move, Standing
from jobwell.core.text import check_storable
from jobwell.core.why import Broken
from jobwell.store.statements import Program, Statements

LISTED = (
    "resource",
    "state",
    "since",
    "until",
    "opens",
    "why",
    "changed_by",
    "good",
    "bad",
    "firsts",
    "retries",
    "probes",
    "window",
)


def declare(statements: Statements, guards: Mapping[str, Guard | None]) -> Program[None]:
    """Say which resources have one.

    Args:
        statements: of the schema.
        guards: by the name of each declared resource; None: it has none.
    """
    given = [
        {"resource": name, "probes": guard.breaker.probes if guard.breaker else 1, "span": guard.window}
        for name, guard in guards.items()
        if guard is not None
    ]
    if given:
        yield statements("breakers.declare", given=orjson.dumps(given).decode())
    bare = [name for name, guard in guards.items() if guard is None]
    if bare:
        yield statements("breakers.undeclare", names=bare)


def feed(statements: Statements, given: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Program[list[Standing]]:
    """Add what calls told, and read how these breakers stand then.

    Args:
        statements: of the schema.
        given: one for each resource: resource, term, good, bad, firsts, retries.
        names: of the resources that are read.
    """
    if given:
        yield statements("breakers.feed", given=orjson.dumps(given).decode())
    rows = yield statements("breakers.read", names=list(names))
    return [Standing(*row) for row in rows]


def move(statements: Statements, at: Standing, to: Move) -> Program[bool]:
    """Change the state, unless somebody else has done it since it was read. Whoever is idle is woken where it closes."""
    if to.extends:
        rows = yield statements("breakers.extend", resource=at.resource, term=at.term, until=to.until, why=to.why)
        return bool(rows)
    rows = yield statements("breakers.move", resource=at.resource, term=at.term, until=to.until, opens=to.opens, why=to.why)
    if rows and to.until is None:
        yield statements("control.wake_all")
    return bool(rows)


def turn(statements: Statements, name: str, until: datetime | None, *, actor: str, why: str | None) -> Program[bool]:
    """Open it until then, or close it (None), as an operator says. Whether anything changed."""
    check_storable(name=name, by=actor, why=why)
    rows = yield statements("breakers.turn", name=name, until=until, actor=actor, why=why)
    yield statements("control.wake_all")
    return bool(rows)


def listed(statements: Statements, name: str | None = None) -> Program[list[dict[str, Any]]]:
    """All of them, or one, with what calls told lately."""
    check_storable(name=name)
    rows = yield statements("breakers.list", name=name)
    return [dict(zip(LISTED, row, strict=True)) for row in rows]


def before(statements: Statements, job: UUID) -> Program[tuple[Broken, ...]]:
    """Those before a waiting job that are not closed."""
    rows = yield statements("breakers.before", id=job)
    return tuple(Broken(*row) for row in rows)

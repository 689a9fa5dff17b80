"""Limits and holds: what code declares, what operators set, and what is in use."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from jobwell.core import failed
from jobwell.core.catalog import Catalog
from jobwell.core.ids import alone
from jobwell.core.limits import Declared, Rate, edition
from jobwell.core.text import check_storable
from jobwell.core.why import Held, Limited
from jobwell.store.statements import Program, Query, Statements

CAP = 100_000
LISTED = ("kind", "name", "per", "concurrency", "rates", "weight", "declared", "code_concurrency", "code_rates", "code_weight",
          "override", "set_at", "set_by", "set_why", "set_until", "set_counts", "in_use")  # fmt: skip
HELD = ("kind", "name", "held_at", "held_by", "held_why", "held_until")
SHOWN = 5  # jobs that are named of those that use a limit


def publish(statements: Statements, worker: UUID, catalog: Catalog, rows: Iterable[Declared]) -> Program[int]:
    """Say what a worker's code declares: what is behind its gates, and its limits. Before it claims.

    Returns:
        How many limits were new or changed.
    """
    yield declare_gates(statements, catalog)
    rows = list(rows)
    found = yield statements(
        "limits.publish", worker=worker, edition=edition(rows), given=orjson.dumps([row.stored() for row in rows]).decode()
    )
    if found[0][0]:
        yield statements("limits.adopt_running")
    return int(found[0][0])


def declare_gates(statements: Statements, catalog: Catalog) -> Query:
    """Say what is behind the gates of these tasks, and what follows their failures."""
    given = [
        {
            "gate": gate, "task": spec.name, "resources": spec.resources, "busy": spec.lock.busy if spec.lock else "wait",
            "ordered": bool(spec.lock and spec.lock.ordered),
            "key_rates": [rate.stored() for rate in spec.lock.rates] if spec.lock and spec.lock.rates else None,
            "follow_up": failed.stored(spec),
        }
        for spec in catalog for own in spec.gates for gate in (own, alone(own))
    ]  # fmt: skip
    return statements("limits.gates", given=orjson.dumps(given).decode())


def put(
    statements: Statements,
    kind: str,
    name: str,
    per: str,
    override: dict[str, Any],
    *,
    actor: str,
    why: str,
    until: datetime | None,
) -> Program[None]:
    """Set values that go before those from code. To be run in one transaction."""
    check_storable(name=name, by=actor, why=why)
    yield statements(
        "limits.set", kind=kind, name=name, per=per, override=orjson.dumps(override).decode(), actor=actor, why=why, until=until
    )
    yield statements("limits.adopt_running")
    yield statements("control.wake_all")


def clear(statements: Statements, kind: str, name: str, per: str | None) -> Program[list[str]]:
    """Let the values from code count again, for one `per` or for all. For which of them anything had been set."""
    rows = yield statements("limits.clear", kind=kind, name=name, per=per)
    yield statements("limits.adopt_running")
    yield statements("control.wake_all")
    return [row[0] for row in rows]


def listed(
    statements: Statements, *, kind: str | None = None, name: str | None = None, only_set: bool = False
) -> Program[list[dict[str, Any]]]:
    """Every limit, as it counts now and as code has it; or only where an operator's values count now."""
    check_storable(name=name)
    rows = yield statements("limits.list", kind=kind, name=name, only_set=only_set)
    return [dict(zip(LISTED, row, strict=True)) for row in rows]


def known(statements: Statements, kind: str) -> Program[list[str]]:
    """Names of such things that somebody has declared, limited or uses."""
    rows = yield statements("limits.known", kind=kind)
    return [row[0] for row in rows]


def tenant_seen(statements: Statements, name: str) -> Program[bool]:
    """Whether any job is of this tenant. Reads far, where none is."""
    check_storable(tenant=name)
    rows = yield statements("limits.tenant_seen", name=name)
    return bool(rows[0][0])


def hold(
    statements: Statements, kind: str, names: Sequence[str], *, actor: str, why: str | None, until: datetime | None
) -> Program[list[str]]:
    """Hold tasks, resources or tenants: nothing of them is claimed any more."""
    for name in names:
        check_storable(name=name)
    check_storable(by=actor, why=why)
    yield statements("limits.forget")
    rows = yield statements("limits.hold", kind=kind, names=list(names), actor=actor, why=why, until=until)
    return sorted(row[0] for row in rows)


def release(statements: Statements, kind: str, names: Sequence[str], *, everything: bool = False) -> Program[list[str]]:
    """Let them go on. Returns those that were held."""
    for name in names:
        check_storable(name=name)
    yield statements("limits.forget")
    rows = yield statements("limits.release", kind=kind, names=list(names), everything=everything)
    yield statements("control.wake_all")
    return sorted(row[0] for row in rows)


def held(statements: Statements) -> Program[list[dict[str, Any]]]:
    """What is held now, besides queues."""
    rows = yield statements("limits.held")
    return [dict(zip(HELD, row, strict=True)) for row in rows]


def delays(statements: Statements, kind: str, name: str, until: datetime) -> Program[tuple[int, int, datetime | None]]:
    """What a hold until then would delay: jobs to start before, those whose deadline would pass, and the first such deadline.

    Counts stop at `CAP`.
    """
    rows = yield statements("limits.delays", kind=kind, name=name, until=until, cap=CAP)
    return int(rows[0][0]), int(rows[0][1]), rows[0][2]


def uses(statements: Statements, kind: str, name: str) -> Program[tuple[int, float, list[UUID]]]:
    """How many use a limit of the whole fleet, seconds until its rates let the next one in, and which jobs: the first few."""
    rows = yield statements("limits.uses", kind=kind, name=name, limit=SHOWN)
    return (int(rows[0][0]), float(rows[0][1]), list(rows[0][2])) if rows else (0, 0.0, [])


def behind(statements: Statements, job: UUID) -> Program[tuple[Limited, ...]]:
    """The limits on a waiting job that let nothing in at this moment."""
    rows = yield statements("limits.behind", id=job, limit=SHOWN)
    found = [
        Limited(kind, name, per, concurrency, tuple(written(rates)), used, wait, tuple(holders))
        for kind, name, per, concurrency, rates, used, wait, holders in rows
    ]
    return tuple(one for one in found if one.full or one.wait > 0)


def written(rates: Any) -> list[str]:
    """Stored rates, as they are written: "10/s"."""
    given = orjson.loads(rates) if isinstance(rates, str | bytes) else rates
    return [str(Rate(one["count"], one["seconds"], one["burst"])) for one in given or ()]


def holding(statements: Statements, job: UUID) -> Program[tuple[Held, ...]]:
    """The holds on a waiting job."""
    rows = yield statements("limits.holding", id=job)
    return tuple(Held(*row) for row in rows)


def forget(statements: Statements) -> Program[int]:
    """Take out what operators had held or set for a time that is over. It has counted no more since then."""
    yield statements("limits.forget")
    rows = yield statements("limits.forget_set")
    return int(rows[0][0])


def forget_uses(statements: Statements, limit: int) -> Program[int]:
    """Take out what nobody needs any more of what was in use. Returns how many rows went."""
    rows = yield statements("limits.forget_uses", limit=limit)
    return int(rows[0][0])

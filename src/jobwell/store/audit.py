"""Who did what."""

from collections.abc import Mapping
from typing import Any

import orjson

from jobwell.core.text import check_storable
from jobwell.store.statements import Program, Statements


def record(
    statements: Statements, *, actor: str, action: str, target: str | None = None, detail: Mapping[str, Any] | None = None
) -> Program[None]:
    """One row; inside the transaction of what it records."""
    check_storable(by=actor, target=target, why=(detail or {}).get("why"))
    encoded = orjson.dumps(detail, default=str).decode() if detail else None
    yield statements("audit.record", actor=actor, action=action, target=target, detail=encoded)


def latest(statements: Statements, *, limit: int) -> Program[list[dict[str, Any]]]:
    """The newest rows."""
    rows = yield statements("audit.list", limit=limit)
    names = ("id", "at", "actor", "action", "target", "detail")
    return [dict(zip(names, row, strict=True)) for row in rows]

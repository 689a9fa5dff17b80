"""How large the store is, and what keeps it from getting smaller."""

from typing import Any

from jobwell.store.statements import Program, Statements

TABLE_COLUMNS = ("table", "rows", "bytes", "index_bytes", "dead", "vacuumed_at")


def sizes(statements: Statements) -> Program[dict[str, Any]]:
    """Tables with rows (an estimate) and bytes; the oldest finished day; what pins vacuum (age in transactions, seconds)."""
    tables = yield statements("sizes.tables")
    oldest = yield statements("sizes.oldest_day")
    pinning = yield statements("sizes.pinning")
    return {
        "tables": [dict(zip(TABLE_COLUMNS, row, strict=True)) for row in tables],
        "oldest_finished_day": oldest[0][0] if oldest else None,
        "pins_vacuum": dict(zip(("who", "transactions", "seconds"), pinning[0], strict=True)) if pinning else None,
    }

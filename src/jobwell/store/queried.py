"""Rows of a query of the user's, from the user's database."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
from psycopg.rows import tuple_row

PIECE = 2000


def cursor_rows(url: str, query: str, parameters: Mapping[str, Any] | None) -> Iterator[tuple[list[str], Sequence[Any]]]:
    """Column names and values of each row, by a cursor on the server."""
    with psycopg.connect(url) as conn, conn.transaction(), conn.cursor("jobwell", row_factory=tuple_row) as cursor:
        cursor.itersize = PIECE
        cursor.execute(query, parameters)
        names: list[str] = []
        for values in cursor:
            names = names or [column.name for column in cursor.description or ()]
            yield names, values

"""Reports on runs: read, composed and written as a stream. They change nothing in the store."""

import codecs
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, tzinfo
from typing import Any, BinaryIO, Final
from uuid import UUID

import orjson

from jobwell.core.run_report import (
    BAD_COLUMNS,
    ERROR_COLUMNS,
    REASONS_TOLD,
    RESULT_COLUMNS,
    RESULT_ENDS,
    RunReport,
    error_row,
    result_row,
    titles,
)  # fmt: skip
from jobwell.core.runs import ItemError
from jobwell.core.text import escaped
from jobwell.reports import run_page, run_sheets, workbook
from jobwell.store import control, run_reports, runs
from jobwell.store.database import Database
from jobwell.store.statements import run

FORMATS: Final = ("html", "xlsx", "csv", "json")
BAD_TOLD: Final = 10_000


def find(database: Database, id: UUID) -> RunReport:
    """What a report says without its lists.

    Args:
        database: the store.
        id: of the run.

    Raises:
        NotFound: there is no such run.
        StoreUnavailable: the database cannot be reached.
    """
    statements = database.statements
    with closing(database.connect("report")) as conn, database.telling():
        card = run(conn, runs.card(statements, id))
        now = run(conn, control.now(statements))
        return RunReport(
            card=card, made_at=now, pace=run(conn, run_reports.pace(statements, card, now)),
            reasons=run(conn, runs.reasons(statements, id, limit=REASONS_TOLD)) if card.errors else [],
            bad=run(conn, runs.bad_rows(statements, id, limit=BAD_TOLD, after=0)) if card.bad_rows else [],
            fields=run(conn, run_reports.fields(statements, id)),
        )  # fmt: skip


def write(database: Database, found: RunReport, form: str, file: BinaryIO, *, zone: tzinfo | None = None) -> None:
    """Write a report; a page of items is in memory at a time.

    Args:
        database: the store.
        found: as `find` returned it.
        form: one of `FORMATS`.
        file: where it goes, in UTF-8. CSV begins with the mark by which spreadsheets know that.
        zone: of the times that people read (default: the host's). CSV and JSON have UTC.

    Raises:
        SettingsError: XLSX, and its library is not installed.
        StoreUnavailable: the database went away; the file is not whole.
    """
    if form == "html":
        file.writelines(piece.encode() for piece in run_page.page(found, zone))
    elif form == "json":
        text = orjson.dumps(found.as_json(), default=str, option=orjson.OPT_INDENT_2).decode()
        file.write(f"{escaped(text)}\n".encode())
    elif form == "csv":
        heads, rows = _results(database, found)
        _csv(file, heads, rows)
    else:
        workbook.check()
        errors = (error_row(one, found.fields) for one in run_reports.errors(database, found.card.id))
        sheets: list[run_sheets.Sheet] = [("Errors", _error_heads(found.fields), errors)]
        if found.bad:
            sheets.append(("Bad rows", list(BAD_COLUMNS), iter([[*asdict(row).values()] for row in found.bad])))
        heads, rows = _results(database, found)
        run_sheets.write(found, [*sheets, ("Items", heads, rows)], zone, file)


def write_errors(
    database: Database, id: UUID, form: str, file: BinaryIO, *, code: str | None = None, limit: int | None = None,
    zone: tzinfo | None = None,
) -> int:  # fmt: skip
    """Write the failed items of a run, with all their fields, as "csv" or "xlsx". Returns how many.

    Raises:
        NotFound: there is no such run.
        SettingsError: XLSX, and its library is not installed.
        StoreUnavailable: the database went away; the file is not whole.
    """
    statements = database.statements
    with closing(database.connect("report")) as conn, database.telling():
        run(conn, runs.card(statements, id))
        fields = run(conn, run_reports.fields(statements, id))
    counted = _Counted(error_row(one, fields) for one in run_reports.errors(database, id, code=code, limit=limit))
    if form == "xlsx":
        workbook.check()
        run_sheets.write(None, [("Errors", _error_heads(fields), counted)], zone, file)
    else:
        _csv(file, _error_heads(fields), counted)
    return counted.count


def error_json(one: ItemError) -> dict[str, Any]:
    """A failed item for programs."""
    found = asdict(one)
    found.pop("place")
    return found | {"at": one.at.astimezone(UTC).isoformat()}


def _error_heads(fields: Sequence[str]) -> list[str]:
    return [*ERROR_COLUMNS, *titles(fields, ERROR_COLUMNS)]


def _results(database: Database, found: RunReport) -> tuple[list[str], Iterator[list[Any]]]:
    stages = [one.name for one in found.card.stages]
    heads = [*RESULT_COLUMNS, *stages, *RESULT_ENDS]
    rows = (result_row(row, stages, found.fields) for row in run_reports.results(database, found.card.id))
    return [*heads, *titles(found.fields, heads)], rows


def _csv(file: BinaryIO, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    file.write(codecs.BOM_UTF8)
    file.writelines(piece.encode() for piece in run_sheets.lines(heads, rows))


class _Counted:
    """Rows, counted as they pass."""

    def __init__(self, rows: Iterator[list[Any]]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[list[Any]]:
        for row in self._rows:
            self.count += 1
            yield row

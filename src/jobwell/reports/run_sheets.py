"""Lists of a run as CSV and XLSX. Rows come as a stream; one is in memory at a time."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, BinaryIO

import orjson

from jobwell.core.run_report import RunReport
from jobwell.core.text import visible
from jobwell.reports.plain import cell
from jobwell.reports.workbook import LONGEST, ROWS, check

Sheet = tuple[str, Sequence[str], Iterable[Sequence[Any]]]
PIECE = 500  # lines that are written together
WIDTHS = {"key": 18, "stage": 16, "code": 20, "message": 60, "at": 20, "reason": 50, "value": 30, "no": 8, "attempt": 8}
SUMMARY = ("stage", "total", "done", "failed", "skipped", "cancelled", "open")


def lines(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """CSV by RFC 4180. Times are ISO 8601 in UTC; what a spreadsheet would take for a formula is text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([cell(head) for head in heads])
    for number, row in enumerate(rows, start=1):
        writer.writerow([_plain(value) for value in row])
        if number % PIECE == 0:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict | list):
        return cell(orjson.dumps(value).decode())
    return cell(value.astimezone(UTC) if isinstance(value, datetime) else value)


def write(found: RunReport | None, sheets: Sequence[Sheet], zone: tzinfo | None, file: BinaryIO) -> None:
    """Write XLSX. Every text is written as text, so none becomes a formula or a link.

    Args:
        found: the report, for a sheet that sums up; None: only lists.
        sheets: name, heads and rows of each; what does not fit into one sheet goes on in the next.
        zone: of the times: a spreadsheet knows none (default: the host's).
        file: where it goes; nothing is there before the end.

    Raises:
        SettingsError: the library is not installed.
    """
    check()
    import xlsxwriter

    with xlsxwriter.Workbook(file, {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}) as book:
        writer = _Book(book, zone)
        if found is not None:
            writer.summary(found)
        for name, heads, rows in sheets:
            writer.list(name, heads, rows)


class _Book:
    """Owns the formats of one book."""

    def __init__(self, book: Any, zone: tzinfo | None) -> None:
        self._book = book
        self._zone = zone
        self._head = book.add_format({"bold": True, "bottom": 1})
        self._big = book.add_format({"bold": True, "font_size": 13})
        self._time = book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss", "align": "left"})

    def summary(self, found: RunReport) -> None:
        sheet = self._sheet("Summary", SUMMARY)
        sheet.set_column(0, 0, 24)
        sheet.set_column(1, 1, 24)
        sheet.write_string(0, 0, visible(found.sentence()), self._big)
        card = found.card
        at = 2
        for name in (
            "id",
            "operation",
            "key",
            "status",
            "started_by",
            "created_at",
            "ended_at",
            "total",
            "duplicates",
            "bad_rows",
        ):
            value = getattr(card, name)
            sheet.write_string(at, 0, name.replace("_", " "), self._head)
            self._cell(sheet, at, 1, value if isinstance(value, int | datetime) or value is None else str(value))
            at += 1
        self._heads(sheet, at + 1, SUMMARY)
        at += 2
        for stage in card.stages:
            row = [stage.name, stage.total, stage.done, stage.failed, stage.skipped, stage.cancelled, stage.open]
            at = self._row(sheet, at, row)
        if found.reasons:
            self._heads(sheet, at + 1, ("failed in", "code", "items"))
            at += 2
            for reason in found.reasons:
                at = self._row(sheet, at, reason)

    def list(self, name: str, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        sheet, at, number = self._begin(name, heads), 1, 1
        for row in rows:
            if at > ROWS:
                number += 1
                sheet, at = self._begin(f"{name} {number}", heads), 1
            at = self._row(sheet, at, row)

    def _begin(self, name: str, heads: Sequence[str]) -> Any:
        sheet = self._sheet(name, heads)
        sheet.freeze_panes(1, 0)
        self._heads(sheet, 0, heads)
        return sheet

    def _sheet(self, name: str, columns: Sequence[str]) -> Any:
        sheet = self._book.add_worksheet(name)
        sheet.set_landscape()
        sheet.fit_to_pages(1, 0)
        for at, column in enumerate(columns):
            sheet.set_column(at, at, WIDTHS.get(column, 14))
        return sheet

    def _heads(self, sheet: Any, at: int, heads: Sequence[str]) -> None:
        for place, head in enumerate(heads):
            sheet.write_string(at, place, visible(head.replace("_", " ") if head in WIDTHS else head), self._head)

    def _row(self, sheet: Any, at: int, row: Sequence[Any]) -> int:
        for place, value in enumerate(row):
            self._cell(sheet, at, place, value)
        return at + 1

    def _cell(self, sheet: Any, at: int, place: int, value: Any) -> None:
        if value is None or value == "":
            return
        if isinstance(value, datetime):
            sheet.write_datetime(at, place, value.astimezone(self._zone).replace(tzinfo=None), self._time)
        elif isinstance(value, bool):
            sheet.write_boolean(at, place, value)
        elif isinstance(value, int | float) and abs(value) < 10**15:  # of longer numbers a spreadsheet forgets the last digits
            sheet.write_number(at, place, value)
        else:
            text = orjson.dumps(value).decode() if isinstance(value, dict | list) else str(value)
            sheet.write_string(at, place, visible(text)[:LONGEST])

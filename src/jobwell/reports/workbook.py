"""A report as an XLSX file: a sheet that sums up, and the list of jobs. Rows go to disk as they come."""

from datetime import datetime, tzinfo
from importlib.util import find_spec
from typing import Any, BinaryIO

from jobwell.core.errors import SettingsError
from jobwell.core.report import COLUMNS, Summary, carried, named
from jobwell.core.text import visible
from jobwell.reports.plain import Jobs

LONGEST = 32_000  # characters in a cell; a spreadsheet takes 32,767
ROWS = 1_048_575  # below the line of names
SUMMARY = ("group", "jobs", "share", "first", "last", "tenants", "example", "retry")
WIDTHS = {
    "group": 32, "share": 8, "first": 20, "last": 20, "example": 70, "retry": 60, "id": 38, "task": 24, "tenant": 20, "queue": 16,
    "reason": 12, "code": 20, "error_type": 28, "message": 70, "failed_at": 20, "fingerprint": 20, "carries": 40,
}  # fmt: skip


def check() -> None:
    """Say at once what is missing, before anything is read.

    Raises:
        SettingsError: the library is not installed.
    """
    if find_spec("xlsxwriter") is None:
        raise SettingsError("a report as XLSX needs xlsxwriter; install jobwell[reports], or take -f csv, html or json")


def write(found: Summary, jobs: Jobs, zone: tzinfo | None, file: BinaryIO) -> None:
    """Write it. Every text is written as text, so none becomes a formula or a link.

    Args:
        found: the summary.
        jobs: the list; what does not fit into one sheet goes on in the next.
        zone: of the times: a spreadsheet knows none (default: the host's).
        file: where it goes; nothing is there before the end.

    Raises:
        SettingsError: the library is not installed.
    """
    check()
    import xlsxwriter

    with xlsxwriter.Workbook(file, {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}) as book:
        writer = _Writer(book, found.until.astimezone(zone), zone)
        writer.summary(found)
        writer.jobs(jobs)


class _Writer:
    """Owns the formats of one book."""

    def __init__(self, book: Any, now: datetime, zone: tzinfo | None) -> None:
        self._book = book
        self._zone = zone
        self._zone_name = now.strftime("%Z")
        self._head = book.add_format({"bold": True, "bottom": 1})
        self._big = book.add_format({"bold": True, "font_size": 13})
        self._time = book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss", "align": "left"})
        self._share = book.add_format({"num_format": "0.0%"})

    def summary(self, found: Summary) -> None:
        sheet = self._sheet("Summary", SUMMARY)
        sheet.write_string(0, 0, visible(found.sentence(self._zone, end="see the sheet Jobs")), self._big)
        period = " – ".join(f"{moment.astimezone(self._zone):%Y-%m-%d %H:%M:%S}" for moment in (found.since, found.until))
        sheet.write_string(1, 0, f"{period} ({self._zone_name}), by {found.wanted.group_by}")
        self._heads(sheet, 3, SUMMARY)
        for at, group in enumerate(found.rows(), start=4):
            self._row(sheet, at, {**group, "group": named(group, found.wanted.group_by)}, SUMMARY)
        if found.more_groups:
            sheet.write_string(4 + len(found.groups), 0, f"… and {found.more_groups:,} smaller groups")

    def jobs(self, jobs: Jobs) -> None:
        sheet, at, number = self._list("Jobs"), 1, 1
        for job in jobs:
            if at > ROWS:
                number += 1
                sheet, at = self._list(f"Jobs {number}"), 1
            self._row(sheet, at, {**job, "carries": carried(job)}, COLUMNS)
            at += 1

    def _list(self, name: str) -> Any:
        sheet = self._sheet(name, COLUMNS)
        sheet.freeze_panes(1, 0)
        self._heads(sheet, 0, COLUMNS)
        return sheet

    def _sheet(self, name: str, columns: tuple[str, ...]) -> Any:
        sheet = self._book.add_worksheet(name)
        sheet.set_landscape()
        sheet.fit_to_pages(1, 0)
        for at, column in enumerate(columns):
            sheet.set_column(at, at, WIDTHS.get(column, 10))
        return sheet

    def _heads(self, sheet: Any, at: int, columns: tuple[str, ...]) -> None:
        for place, column in enumerate(columns):
            words = column.replace("_", " ")
            sheet.write_string(at, place, f"{words} ({self._zone_name})" if column == "failed_at" else words, self._head)

    def _row(self, sheet: Any, at: int, row: dict[str, Any], columns: tuple[str, ...]) -> None:
        for place, column in enumerate(columns):
            value = row[column]
            if value is None or value == "":
                continue
            if isinstance(value, datetime):
                sheet.write_datetime(at, place, value.astimezone(self._zone).replace(tzinfo=None), self._time)
            elif isinstance(value, int | float):
                sheet.write_number(at, place, value, self._share if column == "share" else None)
            else:
                sheet.write_string(at, place, visible(str(value))[:LONGEST])

"""Writes a report in any of its forms."""

import codecs
from collections.abc import Callable, Iterator
from datetime import tzinfo
from typing import BinaryIO, Final

from jobwell.core.report import Summary
from jobwell.reports import page, plain, workbook
from jobwell.reports.plain import Jobs
from jobwell.store import report
from jobwell.store.database import Database

_TEXTS: Final[dict[str, Callable[[Summary, Jobs, tzinfo | None], Iterator[str]]]] = {
    "text": plain.text, "csv": plain.sheet, "json": plain.data, "html": page.page, "ids": plain.ids,
}  # fmt: skip
FORMATS: Final = ("text", "xlsx", "csv", "html", "json", "ids")


def write(
    database: Database, found: Summary, form: str, file: BinaryIO, *, limit: int | None = None, zone: tzinfo | None = None
) -> None:
    """Write a report with its list of jobs; a page of them is in memory at a time.

    Args:
        database: the store.
        found: the summary, as it was read.
        form: one of `FORMATS`.
        file: where it goes, in UTF-8. CSV begins with the mark by which spreadsheets know that.
        limit: at most so many jobs in the list.
        zone: of the times that people read (default: the host's). CSV and JSON have UTC.

    Raises:
        SettingsError: XLSX, and its library is not installed.
        StoreUnavailable: the database went away; the file is not whole.
    """
    if form == "xlsx":
        workbook.check()
    jobs = report.jobs(database, found, limit)
    if form == "xlsx":
        workbook.write(found, jobs, zone, file)
        return
    if form == "csv":
        file.write(codecs.BOM_UTF8)
    file.writelines(piece.encode() for piece in _TEXTS[form](found, jobs, zone))

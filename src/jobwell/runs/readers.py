"""Where items come from, besides any iterable: CSV, XLSX, an SQL query. All of them stream."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jobwell.core.errors import InvalidArguments
from jobwell.store.queried import cursor_rows


class Row(dict[str, Any]):
    """A row by its column names; `number` is the line that a spreadsheet shows for it."""

    number: int


def _row(number: int, names: list[str], values: Any) -> Row:
    row = Row((name, value) for name, value in zip(names, values, strict=False) if name)
    row.number = number
    return row


def csv_rows(path: str | Path, *, delimiter: str = "", encoding: str = "utf-8-sig") -> Iterator[Row]:
    """The rows of a CSV file with a header line. An empty field is None.

    Args:
        path: of the file.
        delimiter: default: comma, semicolon or tab, whichever the header has most of.
        encoding: default: UTF-8, with or without a mark in front; "cp1251" and the like for older files.

    Raises:
        InvalidArguments: there is no header line.
    """
    with Path(path).open(newline="", encoding=encoding) as file:
        first = file.readline()
        if not first.strip():
            raise InvalidArguments(f"{path}: there is no header line with the names of the columns", "items")
        sign = delimiter or max(",;\t", key=first.count)
        names = [name.strip() for name in next(csv.reader([first], delimiter=sign))]
        reader = csv.reader(file, delimiter=sign)
        for values in reader:
            if values:
                yield _row(reader.line_num + 1, names, [value if value != "" else None for value in values])


def xlsx_rows(path: str | Path, *, sheet: str | None = None) -> Iterator[Row]:
    """The rows of an XLSX file with a header line, streamed. Needs openpyxl: `pip install "jobwell[xlsx]"`.

    Args:
        path: of the file.
        sheet: its name (default: the first).

    Raises:
        InvalidArguments: there is no such sheet, or no header line.
    """
    try:
        from openpyxl import load_workbook  # type: ignore[import-untyped]  # it has no types
    except ImportError:
        raise InvalidArguments('xlsx_rows needs openpyxl: pip install "jobwell[xlsx]"', "items") from None
    book = load_workbook(path, read_only=True, data_only=True)
    try:
        if sheet is not None and sheet not in book.sheetnames:
            raise InvalidArguments(f"{path}: there is no sheet {sheet!r}; there are {', '.join(book.sheetnames)}", "items")
        rows = (book[sheet] if sheet is not None else book.worksheets[0]).iter_rows(values_only=True)
        header = next(rows, None)
        if header is None or not any(header):
            raise InvalidArguments(f"{path}: there is no header line with the names of the columns", "items")
        names = ["" if name is None else str(name).strip() for name in header]
        for number, values in enumerate(rows, start=2):
            if any(value is not None for value in values):
                yield _row(number, names, values)
    finally:
        book.close()


def query_rows(url: str, query: str, parameters: Mapping[str, Any] | None = None) -> Iterator[Row]:
    """The rows of an SQL query against any PostgreSQL, by a cursor on the server, so that memory stays bounded.

    Args:
        url: of the database.
        query: with `%(name)s` for parameters.
        parameters: by name.
    """
    for number, (names, values) in enumerate(cursor_rows(url, query, parameters), start=1):
        yield _row(number, names, values)

"""Reports for terminals and programs: text, CSV, JSON, and the ids alone. Each yields pieces of the file."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from typing import Any
from uuid import UUID

import orjson

from jobwell.core.report import COLUMNS, FORMULA, Summary, carried, named
from jobwell.core.text import escaped, flat, visible

Jobs = Iterable[Mapping[str, Any]]


def text(
    found: Summary, jobs: Jobs, zone: tzinfo | None, *, end: str = "the list follows", most: int | None = None
) -> Iterator[str]:
    """For a terminal or the body of a mail.

    Args:
        found: the summary.
        jobs: the list; it may be empty.
        zone: of the times (default: the host's).
        end: the last words of the sentence.
        most: groups that are told (default: all that were read).
    """
    by, rows = found.wanted.group_by, found.rows()
    yield f"{visible(found.sentence(zone, end))}\n"
    for group in rows[:most]:
        first, last = (f"{group[name].astimezone(zone):%d %b %H:%M:%S}" for name in ("first", "last"))
        yield f"\n{group['jobs']:>7,}  {group['share']:6.1%}  {named(group, by)}\n"
        among = f" · {group['tenants']:,} × {found.tenant_word}" if group["tenants"] else ""
        yield f"         {first} – {last}{among}\n"
        if group["example"]:
            yield f"         e.g. {_line(group['example'], 160)}\n"
        yield f"         {group['retry']}\n"
    more = found.more_groups + len(rows) - len(rows[:most])
    if more:
        yield f"\n         … and {more:,} smaller groups\n"
    lines = (_job_line(job, zone) for job in jobs)
    first_line = next(lines, None)
    if first_line is not None:
        yield f"\n{first_line}"
        yield from lines


def _job_line(job: Mapping[str, Any], zone: tzinfo | None) -> str:
    parts = [
        str(job["id"]), f"{job['failed_at'].astimezone(zone):%Y-%m-%d %H:%M:%S}", job["task"], job["tenant"],
        job["code"] or job["reason"], _line(job["message"] or job["error_type"] or "", 120), carried(job),
    ]  # fmt: skip
    return f"{'  '.join(flat(part) for part in parts if part)}\n"


def _line(value: str, longest: int) -> str:
    """The first line of a text."""
    said = visible(value).strip().split("\n", 1)[0]
    return said if len(said) <= longest else f"{said[: longest - 1]}…"


def sheet(_found: Summary, jobs: Jobs, _zone: tzinfo | None) -> Iterator[str]:
    """CSV by RFC 4180: the list of jobs. Times are ISO 8601 in UTC; what a spreadsheet would take for a formula is text."""
    yield _row(COLUMNS)
    for job in jobs:
        yield _row([cell(carried(job) if column == "carries" else job[column]) for column in COLUMNS])


def _row(cells: Iterable[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue()


def cell(value: Any) -> str:
    """A value for a spreadsheet, with an apostrophe in front of what would be a formula."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, int | UUID):
        return str(value)
    shown = visible(str(value))
    return f"'{shown}" if shown.lstrip(" ").startswith(FORMULA) or str(value).startswith(FORMULA) else shown


def data(found: Summary, jobs: Jobs, zone: tzinfo | None) -> Iterator[str]:
    """One JSON object with the list of jobs at its end, a job a line."""
    head = orjson.dumps(found.as_json(found.rows(), zone), default=str, option=orjson.OPT_INDENT_2).decode()
    yield escaped(head.removesuffix("\n}")) + ',\n  "jobs": ['
    comma = ""
    for job in jobs:
        yield f"{comma}\n    {escaped(orjson.dumps(job, default=str).decode())}"
        comma = ","
    yield "\n  ]\n}\n"


def ids(_found: Summary, jobs: Jobs, _zone: tzinfo | None) -> Iterator[str]:
    """The ids alone, one a line: for `xargs jobwell quarantine retry`."""
    for job in jobs:
        yield f"{job['id']}\n"

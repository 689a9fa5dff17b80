"""A report as something that is sent: a subject, a plain text, a page that mail programs can show, and the list attached."""

import io
from datetime import datetime, tzinfo
from html import escape
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from jobwell.core.letter import Attachment, Report
from jobwell.core.report import Summary, named
from jobwell.core.subscription import Kind, Period, Subscription
from jobwell.core.text import clean, flat, visible
from jobwell.reports import plain
from jobwell.reports.writing import write
from jobwell.store import report
from jobwell.store.database import Database

LISTED: Final = 10_000  # jobs in what is attached
LARGEST: Final = 8_000_000  # bytes of it: a third more on the way, and mail servers take 10 to 25 MB
GROUPS: Final = 30  # in the letter itself
LONGEST_SUBJECT: Final = 150
TYPES: Final = {
    "csv": "text/csv", "html": "text/html", "json": "application/json",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}  # fmt: skip
KINDS: Final[dict[Kind, str]] = {"daily": "the daily report", "threshold": "so many have failed", "test": "a test"}
SOFT: Final = "color:#60646c"
CELL: Final = "padding:4px 14px 4px 0;border-bottom:1px solid #e0e3e8;vertical-align:top"


def compose(database: Database, sub: Subscription, period: Period, worker: UUID) -> Report:
    """Read the report of a subscription and make a letter of it. Blocks; on a connection of its own.

    Raises:
        SettingsError: what is needed for its form is not installed.
        StoreUnavailable: the database cannot be reached.
    """
    zone = ZoneInfo(sub.zone)
    found = report.read(database, sub.wanted, period.since, period.until)
    attached, listed = _attached(database, found, sub.form, zone) if found.total else (b"", 0)
    name = f"failed-{period.until.astimezone(zone):%Y-%m-%d-%H%M}.{sub.form}"
    end = "" if not found.total else "the list is attached" if listed >= found.total else f"the newest {listed:,} are attached"
    return Report(
        id=f"{sub.id}.{period.kind}.{round(period.until.timestamp() * 1e6):x}", subscription=sub.id, kind=period.kind,
        worker=worker, at=sub.now, since=period.since, until=period.until, total=found.total,
        owner=sub.wanted.owner, recipients=sub.recipients,
        subject=_subject(sub, found, period), text=_text(sub, found, zone, period.kind, end),
        html=_page(sub, found, zone, period.kind, end),
        attachments=(Attachment(name, TYPES[sub.form], attached),) if found.total else (),
    )  # fmt: skip


def _attached(database: Database, found: Summary, form: str, zone: tzinfo) -> tuple[bytes, int]:
    """The list, and how many jobs are in it: as many as there are, or as mail can carry."""
    limit = min(LISTED, found.total)
    while True:
        file = io.BytesIO()
        write(database, found, form, file, limit=limit, zone=zone)
        size = file.tell()
        if size <= LARGEST or limit == 1:
            return file.getvalue(), limit
        limit = max(1, int(limit * LARGEST / size * 0.9))


def _subject(sub: Subscription, found: Summary, period: Period) -> str:
    test = "Test: " if period.kind == "test" else ""
    jobs = f"{found.total:,} job{'' if found.total == 1 else 's'} failed" if found.total else "no job failed"
    return clean(flat(f"{test}{jobs} ({sub.what()})"), LONGEST_SUBJECT).replace("\n", " ")


def _text(sub: Subscription, found: Summary, zone: tzinfo, kind: Kind, end: str) -> str:
    body = "".join(plain.text(found, (), zone, end=end, most=GROUPS))
    return "".join([body, "\n-- \n", *(f"{line}\n" for line in _footer(sub, found, zone, kind))])


def _footer(sub: Subscription, found: Summary, zone: tzinfo, kind: Kind) -> list[str]:
    """Why somebody gets this, and how to have it no more."""
    since, until = (f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S}" for moment in (found.since, found.until))
    where = "" if found.schema == "jobwell" else f" --schema={found.schema}"
    lines = [
        f"{since} – {until} ({sub.zone}), {sub.what()}: {KINDS[kind]}",
        f"Sent {sub.when()}, as {sub.made_by} has asked for{f': {sub.why}' if sub.why else ''}.",
        f"No more of it: jobwell quarantine unsubscribe {sub.id}{where}",
    ]
    return [flat(line) for line in lines]


def _page(sub: Subscription, found: Summary, zone: tzinfo, kind: Kind, end: str) -> str:
    """Styles stand at the elements: mail programs drop all others."""
    rows = "".join(_row(found, group, zone) for group in found.rows()[:GROUPS])
    more = found.more_groups + max(0, len(found.groups) - GROUPS)
    table = f'<table style="border-collapse:collapse;font-size:14px">\n{rows}</table>\n' if rows else ""
    rest = f'<p style="{SOFT}">… and {more:,} smaller groups.</p>\n' if more else ""
    footer = "<br>\n".join(map(_html, _footer(sub, found, zone, kind)))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Failed jobs</title></head>\n'
        "<body style=\"font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;max-width:60rem\">\n"
        f'<p style="font-size:19px;line-height:1.35">{_html(found.sentence(zone, end))}</p>\n{table}{rest}'
        f'<p style="{SOFT};font-size:13px;margin-top:2rem">{footer}</p>\n</body></html>\n'
    )


def _row(found: Summary, group: dict[str, Any], zone: tzinfo) -> str:
    last: datetime = group["last"]
    example = f'<br><span style="{SOFT}">{_html(_first_line(group["example"]))}</span>' if group["example"] else ""
    number = f"{CELL};text-align:right"
    retry = f'<br><code style="font-size:12px">{_html(group["retry"])}</code>'
    return (
        f'<tr><td style="{number}">{group["jobs"]:,}</td><td style="{number}">{group["share"]:.1%}</td>'
        f'<td style="{CELL}"><b>{_html(named(group, found.wanted.group_by))}</b>{example}{retry}</td>'
        f'<td style="{CELL};white-space:nowrap">{last.astimezone(zone):%d %b %H:%M}</td></tr>\n'
    )


def _first_line(value: str) -> str:
    return visible(value).strip().split("\n", 1)[0][:300]


def _html(value: str) -> str:
    return escape(flat(value), quote=True)

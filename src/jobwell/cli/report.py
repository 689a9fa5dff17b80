"""`jobwell quarantine report`."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, BinaryIO

import click

from jobwell import settings as setting
from jobwell.cli.output import say, store_options
from jobwell.cli.when import MOMENT
from jobwell.core.report import BY
from jobwell.core.states import Reason

FORMATS = click.Choice(["text", "xlsx", "csv", "html", "json", "ids"])
SHOWN = 50  # jobs in a list on a terminal; a file has all


def wanted_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which failed jobs a report is on."""
    for option in (
        click.option("--initiator", help="Only those that this one has caused; '' is those of nobody."),
        click.option(
            "--group", "--fingerprint", "fingerprint", metavar="GROUP", help="Only those of this group: `quarantine groups`."
        ),
        click.option(
            "--error", metavar="TYPE", help="Only with this type of error, as `list` shows it; '' is those without one."
        ),
        click.option("--code", help="Only with this code; '' is those without one."),
        click.option("--tenant", help="Only of this tenant; '' is those without one."),
        click.option("--queue", help="Only of this queue."),
        click.option("--task", help="Only of this task."),
        click.option("--owner", help="Only those that this one answers for; '' is those of nobody."),
        click.option(
            "--reason", type=click.Choice([each.value for each in Reason]), help="Only those that failed for this reason."
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.option("--group-by", type=click.Choice(BY), default="code", show_default=True, help="What the groups have in common.")
@click.option(
    "--since", type=MOMENT, default="1d", show_default=True, help="Failed after: 2h (back from now), 2030-01-31T08:00Z."
)
@click.option("--until", type=MOMENT, help="Failed no later (default: now).")
@wanted_options
@click.option("-f", "--format", "form", type=FORMATS, default="text", show_default=True, help="What to write.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write it here (default: print it).")
@click.option(
    "--limit", type=click.IntRange(min=1), help=f"So many jobs in the list (default: {SHOWN} as printed text, else all)."
)
@click.option("--zone", metavar="NAME", help="Times in this zone, such as Asia/Almaty (default: this host's).")
@store_options
def report(
    form: str, out: Path | None, limit: int | None, zone: str | None, database_url: str | None, schema: str | None, **wanted: Any
) -> int:
    r"""Sum up what failed: a sentence, groups with the command that retries just these, and the list of jobs.

    Changes nothing. The list is read in pages, so 100,000 jobs are no burden. `-f ids` prints the ids alone, for xargs.

    \b
    Examples:
      jobwell quarantine report --group-by task --since 8h
      jobwell quarantine report --task hr.notify -f xlsx --out failed.xlsx
      jobwell quarantine report --code invalid_address -f ids | xargs -r jobwell quarantine retry
    \b
    Exit codes: 3 nobody knows the queue, task, owner or group of a filter · 78 XLSX, and jobwell[reports] is not installed
    """
    from jobwell.actions import report as action
    from jobwell.actions import triage
    from jobwell.actions.queues import check_filters
    from jobwell.core.report import Wanted
    from jobwell.store.database import Database

    if out is not None and not out.name:
        raise click.BadParameter("give the name of a file", param_hint="--out")
    place = zone_of(zone)
    if form == "xlsx":
        from jobwell.reports import workbook

        workbook.check()
        if out is None and sys.stdout.isatty():
            raise click.UsageError("a terminal cannot show XLSX; say --out FILE")
    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    check_filters(database, queue=wanted["queue"], task=wanted["task"])
    action.check_owner(database, wanted["owner"])
    if wanted["fingerprint"]:
        wanted["fingerprint"] = triage.named(database, wanted["fingerprint"])
    since, until = wanted.pop("since"), _until(database, wanted.pop("until"))
    found = action.find(database, Wanted(**wanted), since, until)
    if form == "text" and out is None and limit is None:
        limit = SHOWN
    with target(out) as file:
        action.write(database, found, form, file, limit=limit, zone=place)
    if out is not None:
        say(f"{found.sentence(place, end='')} Written to {out}")
    elif form == "text" and limit is not None and found.total > limit:
        say(f"… and {found.total - limit:,} more: --limit N, or -f xlsx --out failed.xlsx", err=True)
    return 0


def zone_of(name: str | None) -> tzinfo | None:
    """The time zone of this name; none: the host's."""
    from zoneinfo import ZoneInfo

    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise click.BadParameter(f"{name!r} is no time zone; write it like Asia/Almaty or UTC", param_hint="--zone") from None


def _until(database: Any, given: datetime | timedelta | None) -> datetime | None:
    from jobwell.store import control

    if not isinstance(given, timedelta):
        return given
    now: datetime = database.run(control.now(database.statements))
    return now - given


@contextlib.contextmanager
def target(out: Path | None) -> Iterator[BinaryIO]:
    """Where it is written; a file appears under its name when it is whole."""
    if out is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = out.with_name(f".{out.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)

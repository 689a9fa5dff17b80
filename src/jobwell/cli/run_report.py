"""`jobwell runs errors` and `jobwell runs report`."""

import sys
from pathlib import Path

import click

from jobwell.cli.output import json_out, say, store_options, table
from jobwell.cli.report import target, zone_of
from jobwell.cli.run_watch import setting_database

SHOWN = 50
ERROR_FORMATS = click.Choice(["table", "json", "csv", "xlsx"])
REPORT_FORMATS = click.Choice(["html", "xlsx", "csv", "json"])
COLUMNS = ("stage", "key", "code", "message", "attempt", "at")

out_option = click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write it here (default: print it).")
zone_option = click.option("--zone", metavar="NAME", help="Times in this zone, such as Asia/Almaty (default: this host's).")


def _check(form: str, out: Path | None) -> None:
    if out is not None and not out.name:
        raise click.BadParameter("give the name of a file", param_hint="--out")
    if form != "xlsx":
        return
    from jobwell.reports import workbook

    workbook.check()
    if out is None and sys.stdout.isatty():
        raise click.UsageError("a terminal cannot show XLSX; say --out FILE")


@click.command()
@click.argument("run")
@click.option("--code", help="Only those that failed for this; `runs show` lists the codes.")
@click.option(
    "-o", "-f", "--output", "--format", "form", type=ERROR_FORMATS, default="table", show_default=True, help="What to write."
)
@out_option
@click.option("--limit", type=click.IntRange(min=1), help=f"At most so many (default: {SHOWN} as a table, else all).")
@zone_option
@store_options
def errors(
    run: str, code: str | None, form: str, out: Path | None, limit: int | None, zone: str | None, database_url: str | None,
    schema: str | None,
) -> int:  # fmt: skip
    r"""The failed items of a RUN: key, stage, code, message, when, and in a file all fields of the item too.

    Read in pages, so a million are no burden. A text that a spreadsheet would take for a formula is written as text. Correct
    the file and start a run over it, or retry the items: `jobwell runs retry`.

    \b
    Examples:
      jobwell runs errors 019a4f
      jobwell runs errors 019a4f -f xlsx --out failed.xlsx
      jobwell runs errors 019a4f --code no_address -f csv | head
    \b
    Exit codes: 3 no such run · 78 XLSX, and jobwell[reports] is not installed
    """
    from jobwell.actions import run_report as action
    from jobwell.cli.runs import found
    from jobwell.store import run_reports, runs

    place = zone_of(zone)
    _check(form, out)
    database = setting_database(database_url, schema)
    id = found(database, run)
    if form in ("csv", "xlsx"):
        with target(out) as file:
            count = action.write_errors(database, id, form, file, code=code, limit=limit, zone=place)
        if out is not None:
            say(f"{count:,} failed item(s) written to {out}")
        return 0
    if form == "table" and limit is None:
        limit = SHOWN
    if form == "json":
        if out is not None:
            raise click.UsageError("--out goes with -f csv or xlsx; redirect JSON")
        json_out([action.error_json(one) for one in run_reports.errors(database, id, code=code, limit=limit)])
        return 0
    rows = [{name: getattr(one, name) for name in COLUMNS} for one in run_reports.errors(database, id, code=code, limit=limit)]
    table("", rows, COLUMNS, "nothing has failed" if code is None else "nothing has failed for this")
    total: int = database.run(runs.count_failed(database.statements, id, stage=None, code=code, keys=None))
    if total > len(rows):
        say(f"… and {total - len(rows):,} more: --limit N, or -f xlsx --out failed.xlsx", err=True)
    return 0


@click.command()
@click.argument("run")
@click.option("-f", "--format", "form", type=REPORT_FORMATS, default="html", show_default=True, help="What to write.")
@out_option
@zone_option
@store_options
def report(run: str, form: str, out: Path | None, zone: str | None, database_url: str | None, schema: str | None) -> int:
    r"""Report on a RUN: a page for people, or all its results for a spreadsheet.

    \b
    html   one page with the sentence, the stages, charts of pace and of errors by reason; nothing is loaded, nothing runs
    xlsx   sheets: summary, errors, rows that do not fit, and every item with its state in each stage
    csv    every item with its state in each stage
    json   the card, the errors by reason, and the pace

    Changes nothing. Items are read in pages, so a million are no burden.

    \b
    Examples:
      jobwell runs report 019a4f --out run.html
      jobwell runs report transfer-2030-01-28 -f xlsx --out transfer.xlsx --zone Asia/Almaty
      jobwell runs report 019a4f -f csv | grep ',failed,'
    \b
    Exit codes: 3 no such run · 78 XLSX, and jobwell[reports] is not installed
    """
    from jobwell.actions import run_report as action
    from jobwell.cli.runs import found

    place = zone_of(zone)
    _check(form, out)
    database = setting_database(database_url, schema)
    made = action.find(database, found(database, run))
    with target(out) as file:
        action.write(database, made, form, file, zone=place)
    if out is not None:
        say(f"{made.sentence()} Written to {out}")
    return 0

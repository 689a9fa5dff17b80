"""`jobwell runs start`."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobwell.cli.output import by_option, json_out, output_option, say, store_options
from jobwell.core.errors import InvalidArguments, NotFound
from jobwell.core.run_report import count

if TYPE_CHECKING:  # imported when the command runs
    from jobwell.runs.operation import Operation

ON_BAD = {"stop": "stop", "go-on": "skip"}
BAD_SHOWN = 10
TOLD_EVERY = 10_000
NOTHING_STARTED = 1


class Share(click.ParamType[float]):
    """A number of items, or a share of them: 100, 5%."""

    name = "N|N%"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        if isinstance(value, int | float):
            return value
        text = str(value).strip()
        share = text.removesuffix("%")
        if text == share and text.isdecimal() and int(text) > 0:
            return int(text)
        if text == share or not share.replace(".", "", 1).isdecimal() or not 0 < float(share) < 100:
            self.fail(f"{value!r} is no part of the items; write 100, or 5%", param, ctx)
        return float(share) / 100


def _input_options(command: Any) -> Any:
    for option in (
        click.option("--sheet", metavar="NAME", help="Of an XLSX file (default: the first)."),
        click.option("--delimiter", metavar="SIGN", help="Of a CSV file (default: as its header shows)."),
        click.option("--encoding", default="utf-8-sig", metavar="NAME", help="Of a CSV file (default: UTF-8), such as cp1251."),
        click.option("--file", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
                     help="The items: a .csv or .xlsx file, whose first line names the fields."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.argument("operation")
@click.option("--app", metavar="MODULE:APP", required=True, help="The application whose code declares the operation.")
@_input_options
@click.option("--params", metavar="JSON", help="What the operation is started with, as one JSON object; '-' reads it from stdin.")
@click.option("--key", help="Names the start: the same key is the same run, and goes on with it where it broke off.")
@click.option("--tenant", help="For whom its jobs are.")
@click.option("--dry-run", is_flag=True, help="Read and check all items, say what would be done, store nothing.")
@click.option(
    "--canary", type=Share(), help="Let only so many items go (100), or so large a share (5%); `continue` lets the rest go."
)
@click.option("--only", metavar="FIELD=VALUE", multiple=True, help="A canary of the items that have this value; all must fit.")
@click.option("--on-bad", type=click.Choice(list(ON_BAD)), default="stop", show_default=True,
              help="With rows that do not fit: begin nothing, or go on without them.")  # fmt: skip
@click.option("--wait", is_flag=True, help="Watch it until it ends.")
@click.option("--why", metavar="TEXT", help="The reason: for the audit, and on the card.")
@by_option
@output_option
@store_options
def start(
    operation: str, app: str, file: Path | None, params: str | None, *, dry_run: bool, wait: bool, output: str,
    database_url: str | None, schema: str | None, **given: Any,
) -> int:  # fmt: skip
    r"""Start a run of the bulk OPERATION over the rows of a file, and print its id.

    Every row is checked against the item's model before anything runs; with rows that do not fit nothing is begun, or they are
    left out with --on-bad go-on, and `runs show` lists them. Rows stream: a million are no burden. The items are stored when
    the command returns; workers do the rest.

    Give --key and a start that broke off goes on when it is repeated; without one it is cancelled. An operation with a
    preparation of its own needs no --file.

    \b
    Examples:
      jobwell runs start hr.transfer --app hr.jobs:app --file people.xlsx --params '{"to": "Astana"}' --dry-run
      jobwell runs start hr.transfer --app hr.jobs:app --file people.csv --key transfer-2030-01-28 --canary 5% --wait
      jobwell runs start hr.transfer --app hr.jobs:app --file people.csv --only department=Finance
    \b
    Exit codes: 1 rows do not fit and nothing was begun; parameters do not fit · 3 no such operation · 78 the app is wrong
                with --wait those of `runs watch`: 10 completed with errors · 11 cancelled · 12 the canary is over
    """
    found = _operation(app, operation, {"database_url": database_url, "schema": schema})
    if file is None and not any(part.kind == "prepare" for part in found.parts):
        raise click.UsageError(f"{operation} has no preparation that finds the items; say --file people.csv")
    rows = None if file is None else _rows(file, given)
    for name in ("sheet", "delimiter", "encoding"):
        given.pop(name)
    options = given | {"on_bad": ON_BAD[given["on_bad"]], "only": _only(found, given["only"])}
    read = _params(params)
    if dry_run:
        return _plan(found, read, rows, options["on_bad"], output)
    return _start(found, read, rows, options, output, wait=wait)


def _operation(target: str, name: str, given: dict[str, Any]) -> "Operation[Any, Any]":
    import difflib

    from jobwell import services

    app = services.load_app(target)
    app.load()
    app.override({key: value for key, value in given.items() if value is not None})
    if name not in app.operations:
        near = difflib.get_close_matches(name, app.operations, n=1)
        known = ", ".join(app.operations) or "none"
        hint = f"did you mean {near[0]!r}?" if near else f"there are {known}"
        raise NotFound(f"{target} declares no bulk operation {name!r}; {hint}")
    return app.operations[name]


def _params(text: str | None) -> Any:
    from jobwell.core.published import parse

    if text is None:
        return None
    return parse(sys.stdin.read() if text == "-" else text, "--params")


def _only(operation: "Operation[Any, Any]", pairs: tuple[str, ...]) -> dict[str, Any] | None:
    """FIELD=VALUE with the values as the items store them: a number for a field of numbers."""
    from jobwell.core.published import value_of

    found: dict[str, Any] = {}
    fields = operation.items.fields
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{pair!r} is not FIELD=VALUE", param_hint="--only")
        if fields and name not in fields:
            raise click.BadParameter(f"items have no field {name!r}; there are {', '.join(fields)}", param_hint="--only")
        shape = fields.get(name, {})
        takes = {one.get("type") for one in shape.get("anyOf", [shape])}
        found[name] = text if "string" in takes and takes <= {"string", "null"} else value_of(None, None, text, name)
    return found or None


def _rows(file: Path, given: Mapping[str, Any]) -> Iterator[Any]:
    from jobwell.runs.readers import csv_rows, xlsx_rows

    kind = file.suffix.lower()
    if kind in (".xlsx", ".xlsm"):
        rows = xlsx_rows(file, sheet=given["sheet"])
    elif kind in (".csv", ".tsv", ".txt"):
        rows = csv_rows(file, delimiter=given["delimiter"] or "", encoding=given["encoding"])
    else:
        raise click.BadParameter(f"{file.name}: give a .csv or an .xlsx file", param_hint="--file")
    return _counted(_readable(rows, file, given["encoding"]))


def _readable(rows: Iterator[Any], file: Path, encoding: str) -> Iterator[Any]:
    """The rows, with what is wrong with the file in words."""
    import csv
    import zipfile

    try:
        yield from rows
    except UnicodeDecodeError as error:
        hint = "; say --encoding cp1251, or what it is" if encoding.startswith("utf") else ""
        raise InvalidArguments(f"{file}: it is not {encoding}{hint}: {error.reason}", "items") from None
    except LookupError:
        raise InvalidArguments(f"--encoding {encoding}: there is no such encoding", "items") from None
    except csv.Error as error:
        raise InvalidArguments(f"{file}: it cannot be read as CSV: {error}", "items") from None
    except (zipfile.BadZipFile, KeyError) as error:
        raise InvalidArguments(f"{file}: it is no XLSX file: {error}", "items") from None


def _counted(rows: Iterator[Any]) -> Iterator[Any]:
    """The rows, told now and then to whoever waits at a terminal."""
    told = sys.stderr.isatty()
    for number, row in enumerate(rows, start=1):
        yield row
        if told and number % TOLD_EVERY == 0:
            click.echo(f"\r{number:,} rows read", err=True, nl=False)
    if told:
        click.echo("\r\x1b[K", err=True, nl=False)


def _plan(operation: "Operation[Any, Any]", params: Any, rows: Any, on_bad: Any, output: str) -> int:
    from dataclasses import asdict

    plan = asyncio.run(operation.aplan(params, items=rows, on_bad=on_bad))
    if output == "json":
        json_out(asdict(plan))
        return 0 if plan.starts else NOTHING_STARTED
    jobs = ", ".join(f"{name} {number:,}" for name, number in plan.jobs.items())
    say(f"{count(plan.items, 'item')} would be taken; jobs: {jobs}. Nothing was stored.")
    if plan.duplicates:
        say(f"{count(plan.duplicates, 'row')} would be left out: their keys come twice.")
    if plan.bad:
        say(_unfit(plan.bad) + ("; the run would not begin:" if not plan.starts else " and would be left out:"))
        _bad(plan.bad_rows)
    return 0 if plan.starts else NOTHING_STARTED


def _unfit(number: int) -> str:
    return "1 row does not fit" if number == 1 else f"{number:,} rows do not fit"


def _bad(rows: Any, *, err: bool = False) -> None:
    for row in rows[:BAD_SHOWN]:
        value = f" ({row.value})" if row.value else ""
        say(f"  row {row.row}: {row.field + ': ' if row.field else ''}{row.reason}{value}", err=err)
    if len(rows) > BAD_SHOWN:
        say("  … and more", err=err)


def _start(operation: "Operation[Any, Any]", params: Any, rows: Any, options: dict[str, Any], output: str, *, wait: bool) -> int:
    from jobwell.actions.actor import actor
    from jobwell.cli import run_card
    from jobwell.cli.run_watch import follow

    options["by"] = actor(options["by"])
    app_client = operation.client
    with app_client.database.telling():
        if rows is None:
            run = operation.start(params, **options)
        else:
            run = operation.start(params, items=(), seal=False, **options)
            if run.created or not run.status().sealed:
                _fill(operation, run, rows, options)
        card = run.status()
    refused = card.status == "cancelled" and card.bad_rows > 0 and card.by == "jobwell"
    if not run.created and not refused:
        say(f"the key was used before: this is the run of {card.created_at:%Y-%m-%d %H:%M}", err=True)
    if refused:
        say(f"nothing was begun: {_unfit(card.bad_rows)}, see `jobwell runs show {run.id}`", err=True)
        _bad(run.bad_rows(BAD_SHOWN + 1), err=True)
    if output == "table":
        click.echo(str(run.id))
    elif not wait or refused:
        json_out(run_card.as_json(card) | {"created": run.created})
    if refused:
        return NOTHING_STARTED
    return follow(app_client.database, run.id, output) if wait else 0


def _fill(operation: "Operation[Any, Any]", run: Any, rows: Any, options: Mapping[str, Any]) -> None:
    """Store the rows and seal the run. A start without a key that breaks off leaves nothing that would wait for ever."""
    from jobwell.cli.acting import stoppable
    from jobwell.runs.intake import fill

    try:
        with stoppable():
            fill(operation.client, operation.items, run.id, rows, resumes=True)
            run.seal()
    except BaseException:
        if options["key"] is not None:
            say(f"run {run.id} is open: the same start, with the same --key, goes on with it", err=True)
        else:
            run.cancel(by=options["by"], why="its input broke off")
            say(f"run {run.id} is cancelled, as its input broke off", err=True)
        raise

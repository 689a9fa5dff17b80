"""`jobwell breakers …`."""

from typing import Any

import click

from jobwell import settings as setting
from jobwell.cli.output import by_option, csv_out, facts, json_out, output_option, rows_option, say, shown, store_options, table
from jobwell.cli.when import ending, ends_options

COLUMNS = ("resource", "state", "since", "until", "calls", "why", "changed_by")
CSV_COLUMNS = (
    "resource", "state", "since", "until", "opens", "why", "changed_by", "good", "bad", "firsts", "retries", "probes", "window",
)  # fmt: skip


@click.group()
def breakers() -> None:
    """Circuit breakers of resources: which are open, since when and why; close or open one by hand. Needs only a URL."""


@breakers.command("list")
@rows_option
@store_options
def list_breakers(output: str, database_url: str | None, schema: str | None) -> int:
    r"""List breakers, with the failed ones of the calls within their windows.

    \b
    Examples:
      jobwell breakers list
    """
    from jobwell.actions import breakers as actions

    rows = actions.listed(_database(database_url, schema))
    if output == "json":
        json_out(rows)
    elif output == "csv":
        csv_out(rows, CSV_COLUMNS)
    else:
        table("", [{**row, "calls": _calls(row)} for row in rows], COLUMNS, "no worker has declared a breaker")
    return 0


@breakers.command()
@click.argument("name")
@output_option
@store_options
def show(name: str, output: str, database_url: str | None, schema: str | None) -> int:
    r"""One breaker: its state, since when and why, and what calls told lately.

    \b
    Examples:
      jobwell breakers show sms-gateway
    \b
    Exit codes: 3 the resource has none
    """
    from jobwell.actions import breakers as actions

    row = actions.one(_database(database_url, schema), name)
    if output == "json":
        json_out(row)
    else:
        facts([("resource", name), ("state", stated(row)), *_lately(row)])
    return 0


@breakers.command()
@click.argument("name")
@click.option("--why", metavar="TEXT", required=True, help="The reason, kept with the action.")
@by_option
@output_option
@store_options
def close(name: str, why: str, by: str | None, output: str, database_url: str | None, schema: str | None) -> int:
    r"""Close the breaker of the resource NAME before its time: what waits behind it is started at once, as limits allow.

    \b
    Examples:
      jobwell breakers close sms-gateway --why "the provider says that it is back"
    \b
    Exit codes: 3 the resource has none · 4 it is closed
    """
    from jobwell.actions import breakers as actions
    from jobwell.actions.actor import actor

    row = actions.close(_database(database_url, schema), name, by=actor(by), why=why)
    if output == "json":
        json_out(row)
    else:
        say(f"the breaker of {name} is closed; its jobs go on")
    return 0


@breakers.command("open")
@click.argument("name")
@click.option("--why", metavar="TEXT", required=True, help="The reason, shown wherever the breaker is.")
@ends_options
@by_option
@output_option
@store_options
def open_breaker(
    name: str,
    why: str,
    for_: str | None,
    until: str | None,
    by: str | None,
    output: str,
    database_url: str | None,
    schema: str | None,
) -> int:
    r"""Open the breaker of the resource NAME: nothing of it is started until the end that is given; then single jobs try.

    To hold a resource without an end use `jobwell pause resource`.

    \b
    Examples:
      jobwell breakers open sms-gateway --for 20m --why "the provider restarts"
    \b
    Exit codes: 3 the resource has none
    """
    from jobwell.actions import breakers as actions
    from jobwell.actions.actor import actor

    database = _database(database_url, schema)
    end = ending(database, for_, until)
    if end is None:
        raise click.UsageError("say for how long: --for or --until; without an end it is `jobwell pause resource`")
    row = actions.open_until(database, name, end, by=actor(by), why=why)
    if output == "json":
        json_out(row)
    else:
        say(f"the breaker of {name} is open until {shown(end)}")
    return 0


def stated(row: dict[str, Any]) -> str:
    """Its state in words."""
    who = f" by {row['changed_by']}" if row["changed_by"] else ""
    why = f": {row['why']}" if row["why"] else ""
    if row["state"] == "open":
        return f"open until {shown(row['until'])}, since {shown(row['since'])}{who}{why}"
    if row["state"] == "probing":
        return f"probing, {row['probes']} at once, opened {shown(row['since'])}{who}{why}"
    return f"closed, since {shown(row['since'])}{who}{why}"


def _lately(row: dict[str, Any]) -> list[tuple[str, Any]]:
    from jobwell.core.duration import text

    within = f" within {text(row['window'])}"
    return [("calls", _calls(row) + within), ("retries", f"{row['retries']} for {row['firsts']} first attempts{within}")]


def _calls(row: dict[str, Any]) -> str:
    return f"{row['bad']} of {row['good'] + row['bad']} failed"


def _database(database_url: str | None, schema: str | None) -> Any:
    from jobwell.store.database import Database

    return Database(setting.load({"database_url": database_url, "schema": schema}))

"""`jobwell limits …`."""

from typing import Any

import click

from jobwell import settings as setting
from jobwell.cli.output import by_option, csv_out, facts, json_out, output_option, rows_option, say, shown, store_options, table
from jobwell.cli.when import ending, ends_options
from jobwell.core.limits import KINDS, PERS

CSV_COLUMNS = (
    "kind", "name", "per", "concurrency", "in_use", "rate", "weight", "declared", "code_concurrency", "code_rate", "code_weight",
    "set_at", "set_by", "set_why", "set_until",
)  # fmt: skip
COLUMNS = ("kind", "name", "per", "at once", "rate", "weight", "from", "until", "why")
NONE = "none"

kind_option = click.option("--kind", type=click.Choice(KINDS), help="What NAME is, where it could be several things.")


@click.group()
def limits() -> None:
    """Limits, rates and weights: what counts now, and other values for a time. Needs only a URL."""


@limits.command("list")
@rows_option
@store_options
def list_limits(output: str, database_url: str | None, schema: str | None) -> int:
    r"""List limits: what counts now, how much of it is in use, and where the values come from.

    \b
    Examples:
      jobwell limits list
    """
    from jobwell.actions import breakers
    from jobwell.actions import limits as actions
    from jobwell.cli.breakers import stated

    database = _database(database_url, schema)
    rows = actions.listed(database)
    if output == "json":
        json_out(rows)
    elif output == "csv":
        csv_out(rows, CSV_COLUMNS)
    else:
        table("", [row_of(row) for row in rows], COLUMNS, "nothing is limited")
        for row in breakers.listed(database):
            if row["state"] != "closed":
                say(f"the breaker of {row['resource']} is {stated(row)}")
    return 0


@limits.command("set")
@click.argument("name")
@kind_option
@click.option("--concurrency", metavar="JOBS", help="So many at once; 'none': no such limit; 0 holds everything.")
@click.option("--rate", "rates", metavar="RATE", multiple=True, help="10/s, 300/min; several all hold; 'none': no rate.")
@click.option("--weight", metavar="NUMBER", help="Of a tenant: its share beside others; 'none': the usual one.")
@click.option("--per", type=click.Choice(PERS), default="fleet", show_default=True, help="What it is counted for.")
@click.option("--why", metavar="TEXT", required=True, help="The reason, shown wherever the limit is.")
@ends_options
@by_option
@output_option
@store_options
def set_limit(
    name: str,
    kind: Any,
    concurrency: str | None,
    rates: tuple[str, ...],
    weight: str | None,
    per: Any,
    why: str,
    for_: str | None,
    until: str | None,
    by: str | None,
    output: str,
    database_url: str | None,
    schema: str | None,
) -> int:
    r"""Set other values than those from code for NAME: a task, queue, resource or tenant ('tenant:*': each not named).

    What is not given stays as it is. Effective from the next claim on, in every worker, kept across restarts and deploys, until
    `limits clear` or the end that is given; then the values from code count again. What runs above a lower limit goes on.

    \b
    Examples:
      jobwell limits set sms-gateway --rate 60/min --until 18:00 --why "the provider asked"
      jobwell limits set queue:reports --concurrency 2 --for 2h --why "month end"
      jobwell limits set tenant:acme --weight 5 --concurrency none --why "migration weekend"
    \b
    Exit codes: 3 nobody knows such a thing · 4 it is several; write task:NAME, queue:NAME, …
    """
    from jobwell.actions import limits as actions
    from jobwell.actions.actor import actor
    from jobwell.core.errors import DeclarationError

    database = _database(database_url, schema)
    try:
        change = _change(concurrency, rates, weight)
        found, named = actions.find(database, name, kind)
        end = ending(database, for_, until)
        row = actions.put(database, found, named, change, by=actor(by), why=why, per=per, until=end)
    except DeclarationError as error:
        raise click.UsageError(error.message) from None
    if output == "json":
        json_out(row)
    else:
        say(f"{found} {named}: {_values(row)}" + (f" until {shown(end)}" if end else ""))
    return 0


@limits.command()
@click.argument("name")
@kind_option
@click.option("--per", type=click.Choice(PERS), help="Only what is counted so (default: all).")
@by_option
@output_option
@store_options
def clear(
    name: str, kind: Any, per: Any, by: str | None, output: str, database_url: str | None, schema: str | None
) -> int:  # fmt: skip
    r"""Let the values from code count again for NAME.

    \b
    Examples:
      jobwell limits clear sms-gateway
    \b
    Exit codes: 3 nobody knows such a thing · 4 it is several; write task:NAME, queue:NAME, …
    """
    from jobwell.actions import limits as actions
    from jobwell.actions.actor import actor

    database = _database(database_url, schema)
    found, named = actions.find(database, name, kind)
    cleared = actions.clear(database, found, named, by=actor(by), per=per)
    rows = actions.listed(database, kind=found, name=named)
    if output == "json":
        json_out({"cleared": cleared, "limits": rows})
        return 0
    now = "; ".join(_values(row) + ("" if row["per"] == "fleet" else f" per {row['per']}") for row in rows) or "no limit"
    say(f"{found} {named}: {now}" if cleared else f"nothing had been set for the {found} {named}")
    return 0


@limits.command()
@click.argument("name")
@kind_option
@output_option
@store_options
def show(name: str, kind: Any, output: str, database_url: str | None, schema: str | None) -> int:
    r"""One limit: its values now and from code, who set them, why and until when, and which jobs use it.

    \b
    Examples:
      jobwell limits show sms-gateway
    \b
    Exit codes: 3 nobody knows such a thing · 4 it is several; write task:NAME, queue:NAME, …
    """
    from jobwell.actions import breakers
    from jobwell.actions import limits as actions
    from jobwell.cli.breakers import stated

    database = _database(database_url, schema)
    found, named = actions.find(database, name, kind)
    rows = actions.on(database, found, named)
    used, wait, jobs = actions.uses(database, found, named)
    broken = breakers.on(database, named) if found == "resource" else None
    held = next((row for row in actions.held(database) if (row["kind"], row["name"]) == (found, named)), None)
    if output == "json":
        rate = {"in_use": used, "seconds_to_next": wait, "jobs": jobs}
        json_out({"kind": found, "name": named, "held": held, "breaker": broken, "limits": rows, **rate})
        return 0
    if held:
        say(f"held by {held['held_by']} since {shown(held['held_at'])}: {held['held_why'] or 'no reason given'}")
    if broken:
        say(f"its breaker is {stated(broken)}")
    if not rows:
        say(f"the {found} {named} has no limit")
    for row in rows:
        facts(_told(row, used, wait, jobs, known=named != "*"))
    return 0


def _told(row: dict[str, Any], used: int, wait: float, jobs: list[Any], *, known: bool) -> list[tuple[str, Any]]:
    """The lines about one limit."""
    from jobwell.core.duration import text

    fleet = row["per"] == "fleet"
    name = "each tenant that is not named" if row["name"] == "*" else f"{row['kind']} {row['name']}"
    lines = [("limit", name + ("" if fleet else f", per {row['per']}")), ("now", _values(row))]
    if row["declared"]:
        code = {"concurrency": row["code_concurrency"], "rate": row["code_rate"], "weight": row["code_weight"]}
        lines.append(("from code", _values(code)))
    if row["set_by"]:
        until = f", until {shown(row['set_until'])}" if row["set_until"] else ""
        lines.append(("set", f"by {row['set_by']} at {shown(row['set_at'])}{until}: {row['set_why']}"))
    if fleet and row["concurrency"] is not None and known:
        by = f", by {', '.join(map(str, jobs))}" + (", …" if used > len(jobs) else "") if jobs else ""
        lines.append(("in use", f"{used} of {row['concurrency']}{by}"))
    if fleet and row["rate"] and known:
        lines.append(("next", f"in {text(wait)}" if wait > 0 else "at once"))
    return lines


def row_of(row: dict[str, Any]) -> dict[str, Any]:
    """A limit as a row of a table."""
    concurrency = row["concurrency"]
    used = "" if row["in_use"] is None else f"{row['in_use']} of "
    origin = f"{row['set_by']} at {shown(row['set_at'])}" if row["set_by"] else "code" if row["declared"] else ""
    return {
        **row, "at once": "" if concurrency is None else f"{used}{concurrency}", "weight": _number(row["weight"]), "from": origin,
        "until": row["set_until"], "why": row["set_why"],
    }  # fmt: skip


def _values(row: dict[str, Any]) -> str:
    parts = []
    if row["concurrency"] is not None:
        parts.append(f"{row['concurrency']} at once")
    parts += row["rate"]
    if row["weight"] is not None:
        parts.append(f"weight {_number(row['weight'])}")
    return ", ".join(parts) or "no limit"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _change(concurrency: str | None, rates: tuple[str, ...], weight: str | None) -> dict[str, Any]:
    from jobwell.core.limits import rate

    change: dict[str, Any] = {}
    if concurrency is not None:
        change["concurrency"] = None if concurrency == NONE else _read(int, concurrency, "--concurrency")
    if rates:
        if NONE in rates and len(rates) > 1:
            raise click.BadParameter("'none' stands alone", param_hint="--rate")
        change["rates"] = () if NONE in rates else tuple(rate(one) for one in rates)
    if weight is not None:
        change["weight"] = None if weight == NONE else _read(float, weight, "--weight")
    return change


def _read(kind: Any, given: str, option: str) -> Any:
    try:
        return kind(given)
    except ValueError:
        raise click.BadParameter(f"{given!r} is no number; write one, or 'none'", param_hint=option) from None


def _database(database_url: str | None, schema: str | None) -> Any:
    from jobwell.store.database import Database

    return Database(setting.load({"database_url": database_url, "schema": schema}))

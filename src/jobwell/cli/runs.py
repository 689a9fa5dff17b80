"""`jobwell runs …`."""

import sys
from typing import Any
from uuid import UUID

import click

from jobwell.cli import run_card, run_report, run_start, run_watch
from jobwell.cli.output import (
    age,
    by_option,
    console,
    csv_out,
    json_out,
    output_option,
    rows_option,
    say,
    store_options,
    table,
)  # fmt: skip
from jobwell.cli.run_watch import setting_database

STATES = click.Choice(["queued", "running", "paused", "completed", "completed_with_errors", "cancelled"])
COLUMNS = ("id", "operation", "key", "status", "items", "percent", "failed", "started_by", "created_at", "took")
why_option = click.option("--why", metavar="TEXT", help="The reason: for the audit, and on the card.")


@click.group()
def runs() -> None:
    r"""Bulk operations: start one, see how far each is and what failed, and act on it.

    A run is one start of an operation: many items, each with its state in every stage. All but `start` need only a URL.
    RUN is the id (its beginning is enough, from four digits on), the key, or operation:key.
    """


runs.add_command(run_start.start)
runs.add_command(run_watch.watch)
runs.add_command(run_report.errors)
runs.add_command(run_report.report)


def found(database: Any, typed: str) -> UUID:
    """The run that is meant."""
    from jobwell.store import run_reports

    id: UUID = database.run(run_reports.find(database.statements, typed))
    return id


@runs.command("list")
@click.option("--operation", help="Only of this operation.")
@click.option("--status", type=STATES, help="Only in this state.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", type=click.UUID, help="Older than this run: the next page.")
@rows_option
@store_options
def list_runs(output: str, database_url: str | None, schema: str | None, **wanted: Any) -> int:
    r"""List runs, newest first, with how far each is. All filters given must fit.

    \b
    Examples:
      jobwell runs list --status running
      jobwell runs list --operation hr.transfer -o csv > runs.csv
    \b
    Exit codes: 3 there is no run of the operation
    """
    import difflib

    from jobwell.core.errors import NotFound
    from jobwell.store import run_reports

    database = setting_database(database_url, schema)
    rows = database.run(run_reports.listed(database.statements, **wanted))
    if not rows and wanted["operation"]:
        known = database.run(run_reports.operations(database.statements))
        if wanted["operation"] not in known:
            near = difflib.get_close_matches(wanted["operation"], known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are runs of {', '.join(known) or 'none yet'}"
            raise NotFound(f"there is no run of {wanted['operation']!r}; {hint}")
    if output == "json":
        json_out(rows)
    elif output == "csv":
        csv_out(rows, run_reports.LISTED)
    else:
        table("", [row | _told(row) for row in rows], COLUMNS, "no runs")
    if output != "json" and len(rows) == wanted["limit"]:
        click.echo(f"… more: --before {rows[-1]['id']}", err=True)
    return 0


def _told(row: dict[str, Any]) -> dict[str, Any]:
    took = (row["ended_at"] - row["created_at"]).total_seconds() if row["ended_at"] else None
    return {
        "status": run_card.WORDS.get(row["status"], row["status"]), "items": f"{row['items']:,}", "failed": f"{row['failed']:,}",
        "percent": "" if row["percent"] is None else f"{row['percent']:.1f}%", "took": age(took),
    }  # fmt: skip


@runs.command()
@click.argument("run")
@click.option("--item", metavar="KEY", help="What became of this one item, stage by stage.")
@output_option
@store_options
def show(run: str, item: str | None, output: str, database_url: str | None, schema: str | None) -> int:
    r"""The card of a RUN: its state, percent, each stage, why items failed, and what to do about it.

    \b
    Examples:
      jobwell runs show 019a4f
      jobwell runs show transfer-2030-01-28 --item 4711
      jobwell runs show hr.transfer:transfer-2030-01-28 -o json | jq .percent
    \b
    Exit codes: 3 no such run, or no such item in it
    """
    from jobwell.core.errors import NotFound
    from jobwell.store import runs as store

    database = setting_database(database_url, schema)
    id = found(database, run)
    if item is not None:
        rows = database.run(store.item(database.statements, id, item))
        if not rows:
            raise NotFound(f"run {id} has no item {item!r}")
        if output == "json":
            json_out(rows)
        else:
            table("", rows, ("stage", "state", "code", "message", "attempt", "at", "delivery", "delivery_at"), "")
        return 0
    card = database.run(store.card(database.statements, id))
    reasons = database.run(store.reasons(database.statements, id, limit=50)) if card.errors else []
    if output == "json":
        json_out(run_card.as_json(card) | {"reasons": [_reason(*one) for one in reasons]})
        return 0
    console().print(run_card.drawn(card, reasons))
    for row in database.run(store.bad_rows(database.statements, id, limit=5, after=0)) if card.bad_rows else ():
        say(f"  row {row.row}: {row.field or 'the row'}: {row.reason}" + (f" ({row.value})" if row.value else ""))
    return 0


def _reason(stage: str, code: str | None, count: int) -> dict[str, Any]:
    return {"stage": stage, "code": code, "items": count}


def _act(verb: Any, run: str, words: tuple[str, str], given: dict[str, Any]) -> int:
    """Do one verb to a run and tell it: (done, nothing to do)."""
    from jobwell.actions import runs as actions
    from jobwell.actions.actor import actor

    database = setting_database(given["database_url"], given["schema"])
    id = found(database, run)
    changed, card = actions.change(database, verb, id, by=actor(given["by"]), why=given["why"])
    if given["output"] == "json":
        json_out({"run": id, "changed": changed, "status": card.status})
        return 0
    say(f"run {id} {words[0] if changed else words[1]}")
    return 0


def _acting(command: Any) -> Any:
    for option in (store_options, output_option, by_option, why_option, click.argument("run")):
        command = option(command)
    return command


@runs.command()
@_acting
def pause(run: str, **given: Any) -> int:
    r"""Begin with no further item of a RUN. What runs goes on to its next item or its end. Lasts across restarts.

    \b
    Examples:
      jobwell runs pause 019a4f --why "the mail server is down"
    \b
    Exit codes: 3 no such run · 4 it is over
    """
    return _act(
        "pause", run, ("is paused: nothing further begins; `jobwell runs resume` lets it go on", "was paused already"), given
    )


@runs.command()
@_acting
def resume(run: str, **given: Any) -> int:
    r"""Let a paused RUN go on; a preparation that has failed is tried again.

    Behind a canary it is `continue` that lets the rest go.

    \b
    Examples:
      jobwell runs resume 019a4f
    \b
    Exit codes: 3 no such run · 4 it is over, or waits behind its canary
    """
    return _act("resume", run, ("goes on", "was not paused"), given)


@runs.command("continue")
@_acting
def continue_(run: str, **given: Any) -> int:
    r"""Let the rest of a RUN go behind its canary, when what the canary did looks right.

    \b
    Examples:
      jobwell runs show 019a4f
      jobwell runs continue 019a4f --why "the first 400 are right"
    \b
    Exit codes: 3 no such run · 4 nothing waits behind a canary in it
    """
    return _act("let_go", run, ("goes on with the rest behind its canary", ""), given)


@runs.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@_acting
def cancel(run: str, *, yes: bool, **given: Any) -> int:
    r"""End a RUN: what is open is cancelled, what runs comes to its end, what is done stays done. It cannot be undone.

    Shows how many items that means, and asks.

    \b
    Examples:
      jobwell runs cancel 019a4f --why "the wrong list"
    \b
    Exit codes: 3 no such run · 4 it is over
    """
    from jobwell.store import runs as store

    database = setting_database(given["database_url"], given["schema"])
    card = database.run(store.card(database.statements, found(database, run)))
    if not card.over:
        count = sum(one.open for one in card.stages if one.after is None)
        later = " (and what comes out of it)" if len(card.stages) > 1 else ""
        what = f"run {card.id} ({card.operation}): {count:,} open item(s) of its first stage{later}"
        _confirm("cancel", what, yes=yes)
    return _act("cancel", run, ("is cancelled; what runs comes to its end", "was cancelled already"), given)


def _confirm(verb: str, what: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"this would {verb} {what}; say --yes to do it without being asked")
    click.confirm(f"{verb} {what}?", abort=True, err=True)


@runs.command()
@click.argument("run")
@click.option("--failed", type=click.Choice(["all"]), help="All failed items, and finishes that failed.")
@click.option("--code", help="Only those that failed for this, as `runs show` lists it.")
@click.option("--stage", help="Only those that failed in this stage.")
@click.option("--item", "items", multiple=True, metavar="KEY", help="Only this item; give it again for more.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@why_option
@by_option
@output_option
@store_options
def retry(
    run: str, failed: str | None, code: str | None, stage: str | None, items: tuple[str, ...], *, yes: bool, why: str | None,
    by: str | None, output: str, database_url: str | None, schema: str | None,
) -> int:  # fmt: skip
    r"""Open failed items of a RUN again: exactly those, with a new budget of attempts, in the same run; audited.

    Nothing that is done is done twice. Say --failed all, or choose by --code, --stage and --item, which must all fit. The exact
    number is shown and confirmed before anything happens. A second call finds none.

    \b
    Examples:
      jobwell runs retry 019a4f --failed all --why "the mail server is back"
      jobwell runs retry 019a4f --code no_address --yes
      jobwell runs retry 019a4f --item 4711 --item 4712
    \b
    Exit codes: 3 no such run, stage or item · 4 nothing ran in it, or it is still being cancelled
    """
    from jobwell.actions import runs as actions
    from jobwell.actions.actor import actor

    if (failed is not None) == any((code is not None, stage, items)):
        raise click.UsageError("say --failed all, or choose by --code, --stage and --item; one of the two")
    database = setting_database(database_url, schema)
    id = found(database, run)
    chosen: dict[str, Any] = {"stage": stage, "code": code, "keys": list(items) or None}
    count = actions.preview(database, id, **chosen)
    if count or failed:
        _confirm("retry", f"{count:,} failed item(s) of run {id}", yes=yes or not count)
    done = actions.retry(database, id, by=actor(by), why=why, **chosen) if count or failed else 0
    if output == "json":
        json_out({"run": id, "retried": done})
        return 0
    click.echo(f"{done:,} item(s) wait again" + (f"; `jobwell runs watch {id}`" if done else ""))
    return 0

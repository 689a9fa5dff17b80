"""`jobwell runs watch`: a card that is redrawn until the run ends."""

import sys
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import click

from jobwell import settings as setting
from jobwell.cli import run_card
from jobwell.cli.output import console, json_line, output_option, say, store_options
from jobwell.core.runs import Card

EVERY = 0.5
LINE_EVERY = 2.0  # on a pipe
PATIENCE = 1.0  # before a database that is away is asked again
WITH_ERRORS, CANCELLED, STANDS = 10, 11, 12

Moment = tuple[Card, run_card.Reasons]


@click.command()
@click.argument("run")
@click.option("--every", type=click.FloatRange(0.1, 3600), default=EVERY, show_default=True, help="Seconds between two looks.")
@output_option
@store_options
def watch(run: str, every: float, output: str, database_url: str | None, schema: str | None) -> int:
    r"""Watch a RUN until it ends: stages, speed, what is left, and why items fail.

    On a terminal a card that is redrawn in place; elsewhere a line every two seconds where something has changed; with -o json
    one JSON object a line. RUN is an id or its beginning, a key, or operation:key. Ctrl-C ends the watching, not the run. A
    database that is away is asked again. Ends too where only a person lets the run go on: its canary is over, or its
    preparation has failed.

    \b
    Examples:
      jobwell runs watch 019a4f
      jobwell runs watch transfer-2030-01-28 && echo "all done"
      jobwell runs watch 019a4f -o json | jq .percent
    \b
    Exit codes: 0 completed · 10 completed with errors · 11 cancelled · 12 it stands until somebody decides · 3 no such run
    """
    from jobwell.cli.runs import found

    database = setting_database(database_url, schema)
    return follow(database, found(database, run), output, every)


def setting_database(database_url: str | None, schema: str | None) -> Any:
    """The store that the options name."""
    from jobwell.store.database import Database

    return Database(setting.load({"database_url": database_url, "schema": schema}))


def follow(database: Any, run: UUID, output: str, every: float = EVERY) -> int:
    """Show a run until it ends, and give the exit code."""
    card: Card | None = None
    try:
        if output == "json":
            for card, _ in _moments(database, run, every):
                json_line(run_card.as_json(card))
        elif console().is_terminal:
            card = _live(database, run, every)
        else:
            card = _lines(database, run, every)
    except KeyboardInterrupt:
        say(f"stopped watching; the run goes on: `jobwell runs watch {run}`", err=True)
        return 130
    assert card is not None
    if run_card.stands(card) and output == "table":
        verb = "continue" if card.canary else "resume"
        say(f"It waits for you: `jobwell runs {verb} {run}` lets it go on, `jobwell runs cancel {run}` ends it.", err=True)
    return code_of(card)


def code_of(card: Card) -> int:
    """The exit code that tells how a run stands."""
    if run_card.stands(card):
        return STANDS
    return {"completed_with_errors": WITH_ERRORS, "cancelled": CANCELLED}.get(card.status, 0)


def _live(database: Any, run: UUID, every: float) -> Card:
    from rich.live import Live

    card = None
    with Live(console=console(), refresh_per_second=4, transient=False) as live:
        for card, reasons in _moments(database, run, every, always=True):
            live.update(run_card.drawn(card, reasons, narrow=live.console.width < 100), refresh=True)
    assert card is not None
    return card


def _lines(database: Any, run: UUID, every: float) -> Card:
    card, after = None, 0.0
    for card, reasons in _moments(database, run, every):
        over = card.over or run_card.stands(card)
        if time.monotonic() < after and not over:
            continue
        after = time.monotonic() + LINE_EVERY
        click.echo(run_card.line(card))
        sys.stdout.flush()
        for stage, code, count in reasons if over else ():
            say(f"  {count:,} failed in {stage}" + (f": {code}" if code else ""))
    assert card is not None
    return card


def _moments(database: Any, run: UUID, every: float, *, always: bool = False) -> Iterator[Moment]:
    """The card where something has changed, up to the last one; a store that is away is asked again."""
    from jobwell.core.errors import StoreUnavailable

    last, away = None, False
    while True:
        try:
            for moment in _looks(database, run, every):
                away = False
                said = (moment[0].status, run_card.line(moment[0]), moment[1], [part.state for part in moment[0].parts])
                over = moment[0].over or run_card.stands(moment[0])
                if always or over or said != last:
                    last = said
                    yield moment
                if over:
                    return
        except StoreUnavailable as error:
            if last is None:
                raise
            if not away:
                say(f"{error.message}; asking again", err=True)
            away = True
            time.sleep(PATIENCE)


def _looks(database: Any, run: UUID, every: float) -> Iterator[Moment]:
    """On one connection, which may break."""
    from jobwell.store import runs as store
    from jobwell.store.statements import run as drive

    with database.connect("watch") as conn, database.telling():
        while True:
            card = drive(conn, store.card(database.statements, run))
            yield card, drive(conn, store.reasons(database.statements, run, limit=50)) if card.errors else []
            time.sleep(every)

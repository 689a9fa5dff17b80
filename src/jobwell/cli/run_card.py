"""The card of a run: drawn for a terminal, as a line for a log, as JSON for programs."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from jobwell.cli.output import age, shown
from jobwell.core.runs import Card, StageCard
from jobwell.core.text import visible

WORDS = {"completed_with_errors": "completed with errors"}
COLOURS = {
    "queued": "blue", "running": "cyan", "paused": "yellow", "completed": "green", "completed_with_errors": "red",
    "cancelled": "magenta",
}  # fmt: skip
REASONS_SHOWN = 8

Reasons = Sequence[tuple[str, str | None, int]]


def status_of(card: Card) -> str:
    """Its status in words."""
    return WORDS.get(card.status, card.status)


def stands(card: Card) -> bool:
    """Whether it goes on by nobody but a person: its canary is over, or its preparation has failed."""
    return card.status == "paused" and card.by == "jobwell"


def as_json(card: Card) -> dict[str, Any]:
    """All of it, for programs."""
    return asdict(card)


def line(card: Card) -> str:
    """One line, for pipes and logs."""
    share = "  ?  %" if card.percent is None else f"{card.percent:5.1f}%"
    stages = "  ".join(f"{one.name} {one.processed:,}/{_total(one.total)}" for one in card.stages)
    parts = [share, status_of(card), stages, f"errors {card.errors:,}"]
    if card.speed and not card.over:
        parts.append(f"{card.speed:,.0f} items/s")
    if card.remaining is not None and not card.over:
        parts.append(f"about {age(card.remaining)} left")
    return visible("  ".join(parts))


def drawn(card: Card, reasons: Reasons, *, narrow: bool = False) -> RenderableType:
    """The card as a business user reads it.

    Args:
        card: the run.
        reasons: why items have failed.
        narrow: for a terminal of less than a hundred columns.
    """
    head = Text()
    head.append(visible(card.operation), "bold")
    if card.key:
        head.append(f"  {visible(card.key)}")
    head.append(f"  {card.id}", "dim")
    rows: list[RenderableType] = [head, _state(card), Text(), _stages(card, 16 if narrow else 30)]
    parts = [one for one in card.parts if one.state != "waiting" or not card.over]
    if parts:
        rows.append(Text(""))
        rows += [_part(one) for one in parts]
    if reasons:
        rows += [Text(""), _reasons(reasons, card)]
    if card.bad_rows or card.duplicates:
        said = [f"{card.bad_rows:,} row(s) of the input do not fit"] if card.bad_rows else []
        said += [f"{card.duplicates:,} left out, as their keys were there before"] if card.duplicates else []
        rows += [Text(""), Text(" · ".join(said), "yellow")]
    return Group(*rows)


def _state(card: Card) -> Text:
    made = Text()
    made.append(status_of(card), f"bold {COLOURS[card.status]}")
    if card.percent is not None:
        made.append(f"  {card.percent:.1f}%")
    made.append(f"  {card.total:,} items" + ("" if card.sealed or card.over else " so far"))
    if card.errors:
        made.append(f"  {card.errors:,} failed", "red")
    if not card.over:
        if card.speed:
            made.append(f"  {card.speed:,.0f} items/s")
        if card.remaining is not None and card.ends_at is not None:
            made.append(f"  about {age(card.remaining)} left, until {_clock(card.ends_at)}")
    elif card.ended_at is not None:
        made.append(f"  took {age((card.ended_at - (card.started_at or card.created_at)).total_seconds())}")
    made.append(f"\nstarted by {visible(card.started_by)} {shown(card.created_at)}", "dim")
    if card.why and card.by:
        made.append(f"\n{visible(card.by)}: {visible(card.why)}", "yellow" if card.status == "paused" else "dim")
    return made


def _stages(card: Card, width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("stage")
    table.add_column("", width=width)
    for name in ("", "done", "failed", "skipped", "open", "running"):
        table.add_column(name, justify="right")
    told = any(one.accepted or one.delivered or one.bounced for one in card.stages)
    if told:
        table.add_column("delivered", justify="right")
        table.add_column("bounced", justify="right")
    for one in card.stages:
        total = one.total if one.total is not None else max(card.expected or 0, one.processed + max(one.open, 0))
        style = "green" if one.ended and not one.failed else "yellow" if one.failed else "cyan"
        bar = ProgressBar(total=max(total, 1), completed=one.processed if total else int(one.ended), width=width,
                          complete_style=style, finished_style=style)  # fmt: skip
        more = [f"{one.delivered:,}", f"{one.bounced:,}"] if told else []
        failed = Text(f"{one.failed:,}", "red" if one.failed else "")
        table.add_row(
            Text(visible(one.name)), bar, f"{one.processed:,} / {_total(one.total)}", f"{one.done:,}", failed, _skipped(one),
            f"{one.open:,}", f"{one.running:,}", *more,
        )  # fmt: skip
    return table


def _skipped(one: StageCard) -> str:
    return f"{one.skipped + one.cancelled:,}" if not one.cancelled else f"{one.skipped:,} + {one.cancelled:,} cancelled"


def _part(part: Any) -> Text:
    made = Text(f"{part.kind} {visible(part.name)}: ")
    made.append(part.state, {"done": "green", "failed": "red"}.get(part.state, "dim"))
    if part.message:
        made.append(f"  {visible(part.message)}")
    return made


def _reasons(reasons: Reasons, card: Card) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("failed", justify="right")
    table.add_column("stage")
    table.add_column("code")
    table.add_column("")
    for stage, code, count in reasons[:REASONS_SHOWN]:
        again = f"jobwell runs retry {str(card.id)[:13]} --code {visible(code)}" if code else ""
        table.add_row(Text(f"{count:,}", "red"), visible(stage), visible(code or ""), Text(again, "dim"))
    if len(reasons) > REASONS_SHOWN:
        table.add_row("…", "", "", Text(f"{len(reasons) - REASONS_SHOWN} more reasons", "dim"))
    return table


def _total(total: int | None) -> str:
    return "?" if total is None else f"{total:,}"


def _clock(moment: datetime) -> str:
    return f"{moment.astimezone():%H:%M:%S}"

"""How the demo shows its progress: live on a terminal, a line a second elsewhere, or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Moment:
    """How far it is.

    Attributes:
        seconds: since the start.
        done: jobs that are over.
        rate: jobs a second of late.
        deferred: first tries that the mail server put off.
    """

    seconds: float
    people: int
    updated: int
    mailed: int
    quarantined: int
    ready: int
    running: int
    later: int
    done: int
    deferred: int
    repeated: int
    rate: float

    @property
    def live(self) -> int:
        """Jobs that are not over."""
        return self.ready + self.running + self.later


class Progress(Protocol):
    """Where progress goes."""

    def say(self, words: str) -> None:
        """Something happened."""

    def show(self, moment: Moment) -> None:
        """So far it is; called several times a second."""


class Silence:
    """Shows nothing."""

    def say(self, words: str) -> None:
        """Nothing."""

    def show(self, moment: Moment) -> None:
        """Nothing."""


class Lines:
    """A line a second, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 0.0

    def say(self, words: str) -> None:
        """A line."""
        self._console.print(words, highlight=False, markup=False, soft_wrap=True)

    def show(self, moment: Moment) -> None:
        """A line, once a second and at the end."""
        if moment.seconds >= self._next or moment.live == 0:
            self._next = moment.seconds + 1
            self.say(
                f"{moment.seconds:5.1f} s  updated {moment.updated:,}/{moment.people:,}  mailed {moment.mailed:,}"
                f"  quarantined {moment.quarantined:,}  waiting {moment.ready + moment.later:,}  running {moment.running:,}"
                f"  {moment.rate:,.0f} jobs/s"
            )


class Picture:
    """A picture that is redrawn in place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def say(self, words: str) -> None:
        """A line above the picture."""
        self._live.console.print(words, highlight=False, markup=False)

    def show(self, moment: Moment) -> None:
        """Draw anew."""
        self._live.update(_drawn(moment))


@contextmanager
def progress(console: Console | None) -> Iterator[Progress]:
    """The right kind for this console; None for silence."""
    if console is None:
        yield Silence()
    elif console.is_terminal:
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            yield Picture(live)
    else:
        yield Lines(console)


def _drawn(moment: Moment) -> RenderableType:
    bars = Table.grid(padding=(0, 2))
    for label, count, style in (
        ("employees updated", moment.updated, "cyan"),
        ("mailed", moment.mailed, "green"),
        ("in quarantine", moment.quarantined, "red"),
    ):
        bar = ProgressBar(total=moment.people, completed=count, width=40, complete_style=style, finished_style=style)
        bars.add_row(Text(label, justify="right"), bar, Text(f"{count:,} / {moment.people:,}", justify="right"))
    facts = (
        f"{moment.ready:,} waiting · {moment.running:,} running · {moment.later:,} to be tried again · {moment.rate:,.0f} jobs/s"
        f" · mail put off {moment.deferred:,} times · repeated {moment.repeated:,} · {moment.seconds:.1f} s"
    )
    return Group(bars, Text(facts, style="dim"))

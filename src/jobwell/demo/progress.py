"""How the demo shows its progress: live on a terminal, a line a second elsewhere, or not at all."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from jobwell.core.runs import Card

Reasons = Sequence[tuple[str, str | None, int]]
Draw = Callable[[Card, Reasons], RenderableType]


@dataclass(frozen=True)
class Moment:
    """How far it is.

    Attributes:
        seconds: since the start.
        card: of the run; `reasons` why items have failed.
        mailed: people whose mail lies in a mailbox.
        ready, running, later: jobs that are not over.
        done: jobs that are.
        rate: jobs a second of late.
        deferred: first tries that the mail server put off.
        repeated: sends that it knew by their Message-ID.
    """

    seconds: float
    card: Card
    reasons: Reasons
    mailed: int
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

    @property
    def over(self) -> bool:
        """Whether the run has ended, and no job is left."""
        return self.card.over and self.live == 0


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
        if moment.seconds >= self._next or moment.over:
            self._next = moment.seconds + 1
            stages = "  ".join(f"{one.name} {one.done:,}/{moment.card.total:,}" for one in moment.card.stages)
            self.say(
                f"{moment.seconds:5.1f} s  {moment.card.status.replace('_', ' ')}  {stages}  mailed {moment.mailed:,}"
                f"  failed {moment.card.errors:,}  running {moment.running:,}  {moment.rate:,.0f} jobs/s"
            )


class Picture:
    """A picture that is redrawn in place."""

    def __init__(self, live: Live, draw: Draw) -> None:
        self._live = live
        self._draw = draw

    def say(self, words: str) -> None:
        """A line above the picture."""
        self._live.console.print(words, highlight=False, markup=False)

    def show(self, moment: Moment) -> None:
        """Draw anew."""
        self._live.update(Group(self._draw(moment.card, moment.reasons), Text(), _facts(moment)))


@contextmanager
def progress(console: Console | None, draw: Draw) -> Iterator[Progress]:
    """The right kind for this console; None for silence. The card of the run is drawn by `draw`."""
    if console is None:
        yield Silence()
    elif console.is_terminal:
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            yield Picture(live, draw)
    else:
        yield Lines(console)


def _facts(moment: Moment) -> Text:
    return Text(
        f"{moment.mailed:,} in their mailboxes · put off {moment.deferred:,} times · repeated {moment.repeated:,} · jobs:"
        f" {moment.ready:,} waiting, {moment.running:,} running, {moment.later:,} to be tried again · {moment.rate:,.0f} jobs/s"
        f" · {moment.seconds:.1f} s",
        style="dim",
    )

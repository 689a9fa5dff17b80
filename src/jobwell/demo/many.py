"""A run of as many items as somebody is curious about: they stream in while the first of them are done, in bounded memory."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from jobwell.actions import run_report as action
from jobwell.demo.processes import Child, DemoError
from jobwell.demo.progress import Progress
from jobwell.demo.tasks import many, tasks
from jobwell.demo.watch import Watch
from jobwell.demo.world import World
from jobwell.runs import Run
from jobwell.store import runs as store

ASK = 0.3  # seconds between two looks
STUCK = 60.0  # seconds without any movement


@dataclass
class Counted:
    """What came of it.

    Attributes:
        done: items that are done in the end.
        failed: that had failed at first; `retried` of them were tried again.
        left: that have failed after all.
        exact: whether the card said what a recount of all items says, before and after the retry.
        sentence: the report on its first end.
    """

    items: int
    done: int
    failed: int
    retried: int
    left: int
    exact: bool
    seconds: float
    sentence: str

    @property
    def balanced(self) -> bool:
        """Whether every item is accounted for."""
        return self.exact and self.done == self.items and self.failed == self.retried and self.left == 0

    def as_json(self) -> dict[str, Any]:
        """The one object of `-o json`."""
        names = ("items", "done", "failed", "retried", "left", "exact", "seconds", "balanced")
        return {name: getattr(self, name) for name in names}


def show(console: Console, counted: Counted) -> None:
    """Print it."""
    console.print(Text(counted.sentence))
    said = f"{counted.retried:,} failed items were tried again; {counted.done:,} of {counted.items:,} are done"
    word, colour = ("Balanced", "green") if counted.balanced else ("Not balanced", "red")
    console.print(Text.assemble((f"{word}: ", colour), f"{said}, in {counted.seconds:.1f} s."))


def work(place: World, team: Child, count: int, progress: Progress) -> Counted:
    """Let the workers of the demo do it, with one retry of what has failed."""
    place.app.include(tasks)
    run = many.start(items=(), key="many", on_bad="skip", expected=count, by="the demo", seal=False)
    watch, leave = Watch(place, run), threading.Event()

    def feed() -> None:
        run_of = many.run(run.id)
        run_of.add(_items(count, leave))
        if not leave.is_set():
            run_of.seal()

    with ThreadPoolExecutor(1) as pool:
        fed = pool.submit(feed)
        try:
            _until_over(watch, team, progress, fed.running)
            fed.result()
        finally:
            leave.set()
    found = action.find(place.database, run.id)
    exact = is_exact(place, run)
    retried = run.retry(by="the demo", why="unlocked")
    progress.say(f"{found.card.errors:,} items had failed; {retried:,} are tried again, and nothing else")
    _until_over(watch, team, progress, lambda: False)
    card = run.status()
    return Counted(
        items=count, done=card["touch"].done, failed=found.card.errors, retried=retried, left=card.errors,
        exact=exact and is_exact(place, run), seconds=round(watch.seconds, 2), sentence=found.sentence(),
    )  # fmt: skip


def _items(count: int, leave: threading.Event) -> Iterator[dict[str, int]]:
    for number in range(1, count + 1):
        if number % 1000 == 0 and leave.is_set():
            return
        yield {"n": number}


def _until_over(watch: Watch, team: Child, progress: Progress, feeding: Any) -> None:
    while True:
        team.check()
        moment = watch.look()
        progress.show(moment)
        if moment.over and not feeding():
            return
        if watch.still > STUCK and not feeding():
            raise DemoError(f"nothing has moved for {STUCK:.0f} seconds; the worker said last:\n{team.tail()}")
        time.sleep(ASK)


def is_exact(place: World, run: Run) -> bool:
    """Whether the card says what a recount of the items says."""
    counted = place.database.run(store.recount(place.database.statements, run.id))
    stages = run.status().stages
    parts = [counted.get(number, (0, 0, 0, 0)) for number in range(len(stages))]
    return parts == [(one.done, one.failed, one.skipped, one.cancelled) for one in stages]

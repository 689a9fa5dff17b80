"""Looks at the demo from the outside: the sink's journal, and counts in the store."""

import time
from collections import deque

from jobwell.demo.mailbox import DEFERRED, DELIVERED, REPEATED, Reader, Tally
from jobwell.demo.progress import Moment
from jobwell.demo.world import World
from jobwell.runs import Run

WINDOW = 10  # looks over which the rate is taken


class Watch:
    """Owns the tally of the journal and the clock of the run, which starts here.

    Attributes:
        run: that is watched.
        still: seconds since something moved.
        overtaken: mails that waited when the urgent jobs came.
    """

    def __init__(self, place: World, run: Run) -> None:
        self._place = place
        self.run = run
        self._reader = Reader(place.folder / "mailbox")
        self._began = self._moved_at = time.monotonic()
        self._last: tuple[int, ...] = ()
        self._past: deque[tuple[float, int]] = deque([(0.0, 0)], maxlen=WINDOW)
        self.tally = Tally()
        self.seconds = 0.0
        self.still = 0.0
        self.overtaken = 0

    def mail(self) -> int:
        """Read on in the journal. Returns how many people have been mailed."""
        for entry in self._reader.new():
            self.tally.add(entry)
        return len(self.tally.mailboxes)

    def look(self) -> Moment:
        """Count in the store."""
        quarantined, finished, ready, running, later, starts = self._place.ask("moved")[0]
        card = self.run.status()
        self.seconds = time.monotonic() - self._began
        done = finished + quarantined
        counts = self.tally.counts
        items = sum(one.processed for one in card.stages)
        facts = (items, done, ready, running, later, starts, counts[DELIVERED], counts[DEFERRED])
        if facts != self._last:
            self._last, self._moved_at = facts, time.monotonic()
        self.still = time.monotonic() - self._moved_at
        then, had = self._past[0]
        self._past.append((self.seconds, done))
        return Moment(
            seconds=self.seconds, card=card, reasons=self.run.reasons() if card.errors else (), mailed=len(self.tally.mailboxes),
            ready=ready, running=running, later=later, done=done, deferred=counts[DEFERRED], repeated=counts[REPEATED],
            rate=(done - had) / max(self.seconds - then, 0.001),
        )  # fmt: skip

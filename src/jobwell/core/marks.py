"""When a claim should name the lanes it knows, instead of looking for them.

A long transaction elsewhere (a dump, a report, a forgotten session) stops vacuum. What was claimed since then stays at the
head of every lane in the index, and each look for work walks over it again. A claim that names its lanes, each with a mark
before which it has left nothing, walks over none of it. But marks hide what commits late (its time is that of the insert)
and lanes that are new, so:

* marks are used only while whole looks read many dead entries;
* a mark is the last job taken, but no younger than a lag ago, as large as the dead entries allow: what commits later than
  that was long under way, and a backlog (thousands of one moment, too) is walked exactly;
* a whole look comes again after a second, or after twenty times what the last one took, whichever is later; it renews the
  marks, also backwards.
"""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

Lane = tuple[str, int, int, str]  # queue, rank, gate, tenant
Mark = tuple[int, UUID]  # when the last job taken became ready (microseconds), and which it was

MANY_READS = 500  # index entries read by one claim, beyond what its jobs explain
READS_PER_JOB = 10
MOST_LANES = 256
LONGEST_LAG = 2_000_000  # microseconds
SHORTEST_LAG = 10_000
LEAST_PAUSE = 1.0
COST_FACTOR = 20.0


class Taken(Protocol):
    """What is looked at of a claimed job."""

    @property
    def id(self) -> UUID: ...  # noqa: D102  as on the claimed row
    @property
    def queue(self) -> str: ...  # noqa: D102  as on the claimed row
    @property
    def rank(self) -> int: ...  # noqa: D102  as on the claimed row
    @property
    def gate(self) -> int: ...  # noqa: D102  as on the claimed row
    @property
    def tenant(self) -> str: ...  # noqa: D102  as on the claimed row
    @property
    def ready_us(self) -> int: ...  # noqa: D102  as on the claimed row
    @property
    def reads(self) -> int: ...  # noqa: D102  as on the claimed row


class Marks:
    """Decides claim by claim, for one worker."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, Mark] = {}
        self.lag = LONGEST_LAG
        self._whole_at = 0.0
        self.on = False

    def lanes(self, now: float) -> list[tuple[Lane, Mark]] | None:
        """The lanes to name with their marks, or None for a whole look.

        Args:
            now: monotonic seconds.
        """
        if not self.on or not self._lanes or now >= self._whole_at:
            return None
        return list(self._lanes.items())

    def learn(self, rows: Sequence[Taken], *, whole: bool, now: float, took: float) -> None:
        """What a claim found.

        Args:
            rows: the jobs taken; each carries the number of index entries read by the claim.
            whole: whether it was a whole look.
            now: monotonic seconds at its end.
            took: how long it took, in seconds.
        """
        reads = rows[-1].reads if rows else 0
        many = reads > MANY_READS + READS_PER_JOB * len(rows)
        if whole:
            # An empty look tells nothing about the dead: it keeps what is known.
            self.on = many or (self.on and not rows)
            self._whole_at = now + max(LEAST_PAUSE, COST_FACTOR * took)
            if not self.on:
                self._lanes.clear()
                self.lag = LONGEST_LAG
                return
            forward = False
        else:
            forward = True
            self.lag = max(SHORTEST_LAG, self.lag // 2) if many else min(LONGEST_LAG, self.lag * 9 // 8)
        last: dict[Lane, Mark] = {}
        for row in rows:
            lane, mark = (row.queue, row.rank, row.gate, row.tenant), (row.ready_us, row.id)
            last[lane] = max(last.get(lane, mark), mark)
        for lane, mark in last.items():
            before = self._lanes.pop(lane, mark)  # taken out and put back: the lanes used last stand last
            self._lanes[lane] = max(before, mark) if forward else mark
        while len(self._lanes) > MOST_LANES:
            del self._lanes[next(iter(self._lanes))]

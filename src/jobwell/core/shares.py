"""How many slots a pool may take now, and whose turn it is. Decisions from numbers; the worker only carries them out.

* Never more than the process has in all, and of a pool's own slots `least` are kept for it whatever others want. As nobody takes
  below that, a pool finds its `least` free at once, always.
* A pool below its own slots goes before one that borrows, the emptiest first; a pool without jobs is no hindrance.
* Within a pool: strict queues in their order, weighted ones by what they have taken, and jobs that take several slots by turns
  with the others. When the turn is theirs and too few slots are free, the pool begins nothing else until they are.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

RESTS = (0.002, 0.01, 0.05)  # seconds until a line that had nothing is asked again while others have jobs
LOOK_EVERY = 1.0  # seconds for which it is believed that jobs of several slots are ready, or are not
LONGEST_VAIN = 60.0  # seconds until slots are gathered again for jobs that were ready and could not be had


@dataclass(frozen=True, slots=True)
class Share:
    """Of a pool, at one moment: its own slots, those never lent, and the most with borrowed ones."""

    own: int
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Room:
    """How many more slots a pool may take: of its own, and with borrowed ones."""

    own: int
    most: int


def rooms(shares: Sequence[Share], used: Sequence[int], total: int) -> list[Room]:
    """What each pool may take now, if it is the only one to take.

    Args:
        shares: of each pool.
        used: slots that its jobs have.
        total: slots of the process. Where more are used than a time table gives now, nothing begins until they are fewer.
    """
    free = max(0, total - sum(used))
    kept = [max(0, min(share.least, share.own) - taken) for share, taken in zip(shares, used, strict=True)]
    found = []
    for share, taken, mine in zip(shares, used, kept, strict=True):
        spare = max(0, free - (sum(kept) - mine))
        found.append(Room(min(max(0, share.own - taken), spare), min(max(0, max(share.own, share.most) - taken), spare)))
    return found


@dataclass(slots=True)
class Queue:
    """A queue of a pool, or all of them where priority decides.

    Attributes:
        place: in a strict pool; the first goes first.
        taken: slots, by weight: the one with the least has the turn.
    """

    pool: int
    names: tuple[str, ...]
    weight: int = 1
    place: int = 0
    taken: float = 0.0


@dataclass(slots=True, eq=False)
class Line:
    """Jobs of one queue that take the same number of slots each: one claim asks for them alone.

    Attributes:
        taken: slots, among the lines of its queue.
        empty: claims in a row that found nothing; it rests until `rest_until` while others have jobs.
        looked_at, ready: when it was last seen whether jobs are ready, for those that take several slots.
        vain: times in a row that slots were gathered and nothing could be claimed.
    """

    queue: Queue
    cost: int = 1
    taken: float = 0.0
    empty: int = 0
    rest_until: float = 0.0
    looked_at: float = -LOOK_EVERY
    ready: bool = False
    vain: int = 0

    @property
    def pool(self) -> int:
        """Whose it is."""
        return self.queue.pool


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose turn it is: to claim up to `slots` slots, or, at 0, to see whether there are jobs for which they must be gathered."""

    line: Line
    slots: int


@dataclass(slots=True)
class Round:
    """One round of claims: each line has turns until it has nothing more.

    Args:
        lines: all of them.
        everyone: also those that rest.
        heavy: whether jobs of several slots may begin.
        now: monotonic seconds.
    """

    lines: Sequence[Line]
    everyone: bool
    heavy: bool
    now: float
    _done: set[int] = field(default_factory=set)
    _turns: Counter[int] = field(default_factory=Counter)

    def next(self, shares: Sequence[Share], found: Sequence[Room], used: Sequence[int]) -> Turn | None:
        """The next one; None: nobody can begin anything now.

        Args:
            shares: of each pool.
            found: what each may take now.
            used: slots that its jobs have.
        """
        gathering = {line.pool for line in self.lines if self._gathers(line)}

        def order(pool: int) -> tuple[bool, int, float]:  # one whose jobs end at once is never full: others have their turns too
            return found[pool].own <= 0, self._turns[pool], _fullness(shares[pool], used[pool])

        for pool in sorted(range(len(shares)), key=order):
            room = found[pool]
            if room.most <= 0 or (room.own <= 0 and gathering - {pool}):  # what is gathered is lent to nobody
                continue
            turn = self._within(pool, shares[pool], room)
            if turn is not None:
                self._turns[pool] += 1
                return turn
        return None

    def _within(self, pool: int, share: Share, room: Room) -> Turn | None:
        """Whose turn it is within a pool."""
        while True:
            awake = [line for line in self.lines if line.pool == pool and self._awake(line, share)]
            if not awake:
                return None
            line = min(awake, key=lambda line: (line.queue.place, line.queue.taken, line.taken))
            if line.cost <= room.most:
                return Turn(line, room.own if line.cost <= room.own else room.most)
            if self.now - line.looked_at >= LOOK_EVERY:
                return Turn(line, 0)  # slots are gathered only for jobs that are there
            if line.ready:
                return None
            self._done.add(id(line))

    def _awake(self, line: Line, share: Share) -> bool:
        if id(line) in self._done or not (self.everyone or line.rest_until <= self.now):
            return False
        return line.cost == 1 or (self.heavy and line.cost <= max(share.own, share.most))

    def _gathers(self, line: Line) -> bool:
        return line.ready and self.heavy and id(line) not in self._done and self.now - line.looked_at < 2 * LOOK_EVERY

    def saw(self, line: Line, *, ready: bool) -> None:
        """Whether jobs are there for which slots must be gathered."""
        line.looked_at, line.ready = self.now, ready
        if not ready:
            self._rest(line, 0)

    def claimed(self, line: Line, want: int, got: int) -> None:
        """What a claim brought.

        Args:
            line: whose.
            want: jobs asked for.
            got: jobs claimed.
        """
        if line.empty and got:  # it had nothing for a while: that is no claim on the time since
            others = [each for each in self.lines if each.pool == line.pool and not each.empty]
            line.queue.taken = max(line.queue.taken, min((each.queue.taken for each in others), default=0.0))
            mates = [each.taken for each in others if each.queue is line.queue]
            line.taken = max(line.taken, min(mates, default=0.0))
        line.taken += got * line.cost
        line.queue.taken += got * line.cost / line.queue.weight
        in_vain = line.ready and not got  # seen ready, gathered for, and not to be had: its lock is held, or another took it
        line.ready = False
        line.looked_at = self.now - LOOK_EVERY
        if in_vain:
            line.vain += 1
            line.looked_at += min(LONGEST_VAIN, LOOK_EVERY * 2.0 ** (line.vain - 1))
        elif got:
            line.vain = 0
        if got < want:
            self._rest(line, got)
        else:
            line.empty, line.rest_until = 0, 0.0

    def _rest(self, line: Line, got: int) -> None:
        self._done.add(id(line))
        line.empty = 0 if got else line.empty + 1
        line.rest_until = self.now + RESTS[min(max(line.empty - 1, 0), len(RESTS) - 1)]


def _fullness(share: Share, used: int) -> float:
    return used / share.own if share.own else float(used) + 1.0

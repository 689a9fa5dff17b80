"""How many slots a pool may take, and whose turn it is: nobody gets more than there is, and nobody waits for ever."""

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobwell.core.shares import LOOK_EVERY, Line, Queue, Room, Round, Share, rooms


@st.composite
def shares(draw: st.DrawFn) -> list[Share]:
    """Of some pools."""
    own = draw(st.lists(st.integers(0, 12), min_size=1, max_size=4))
    return [Share(number, draw(st.integers(0, number)), number + draw(st.integers(0, 12))) for number in own]


def kept(shares: Sequence[Share], used: Sequence[int]) -> int:
    return sum(max(0, share.least - taken) for share, taken in zip(shares, used, strict=True))


@given(shares(), st.integers(0, 10), st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(1, 20)), max_size=60))
def test_whatever_happens_each_pool_finds_its_least_free_and_the_process_holds_its_total(
    shares: list[Share], more: int, steps: list[tuple[bool, int, int]]
) -> None:
    total, used = sum(share.own for share in shares) + more, [0] * len(shares)
    for takes, at, number in steps:
        pool = at % len(shares)
        room = rooms(shares, used, total)[pool]
        assert 0 <= room.own <= room.most
        used[pool] += min(number, room.most) if takes else -min(number, used[pool])
        assert sum(used) <= total
        assert all(taken <= share.most for share, taken in zip(shares, used, strict=True))
        assert total - sum(used) >= kept(shares, used)
        for share, taken, left in zip(shares, used, rooms(shares, used, total), strict=True):
            assert left.own >= share.least - taken


@given(shares(), st.data())
def test_where_more_is_used_than_a_time_table_gives_nothing_begins(shares: list[Share], data: st.DataObject) -> None:
    total = sum(share.own for share in shares)
    used = [data.draw(st.integers(0, 30)) for _ in shares]
    if sum(used) >= total:
        assert all(room == Room(0, 0) for room in rooms(shares, used, total))
    for share, taken, room in zip(shares, used, rooms(shares, used, total), strict=True):
        assert taken + room.most <= max(share.most, taken)


def test_a_pool_borrows_what_others_leave_idle_but_not_their_least() -> None:
    fast, heavy = Share(20, 10, 20), Share(4, 2, 12)
    assert rooms([fast, heavy], [0, 0], 24) == [Room(20, 20), Room(4, 12)]
    assert rooms([fast, heavy], [0, 12], 24) == [Room(12, 12), Room(0, 0)]
    assert rooms([fast, heavy], [6, 4], 24) == [Room(14, 14), Room(0, 8)]
    assert rooms([fast, heavy], [18, 4], 24) == [Room(2, 2), Room(0, 2)]
    assert rooms([fast, Share(4, 2, 99)], [0, 4], 24) == [Room(20, 20), Room(0, 10)]


# --- turns, played -------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """Lines with jobs, slots, and time. A job ends at the time that it was given when it began."""

    shares: list[Share]
    lines: list[Line]
    total: int
    jobs: dict[int, int]  # ready, by the place of their line
    seconds: Callable[[int], float]
    batch: int = 4
    now: float = 0.0
    looks: int = 0
    used: list[int] = field(default_factory=list)
    running: list[tuple[float, int]] = field(default_factory=list)  # end, place of the line
    began: Counter[int] = field(default_factory=Counter)
    order: "deque[int]" = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.used = [0] * len(self.shares)

    def turn(self, *, heavy: bool = True, everyone: bool = True) -> None:
        """One round of claims."""
        turns = Round(self.lines, everyone, heavy, self.now)
        for _ in range(200):
            turn = turns.next(self.shares, rooms(self.shares, self.used, self.total), self.used)
            if turn is None:
                return
            line, at = turn.line, self.lines.index(turn.line)
            if not turn.slots:
                self.looks += 1
                turns.saw(line, ready=self.jobs.get(at, 0) > 0)
                continue
            want = max(1, min(turn.slots, self.batch) // line.cost)
            got = min(want, self.jobs.get(at, 0))
            self.jobs[at] = self.jobs.get(at, 0) - got
            for _ in range(got):
                self.running.append((self.now + self.seconds(at), at))
                self.order.append(at)
            self.began[at] += got
            self.used[line.pool] += got * line.cost
            assert sum(self.used) <= self.total
            assert self.used[line.pool] <= max(self.shares[line.pool].own, self.shares[line.pool].most)
            turns.claimed(line, want, got)
        raise AssertionError("a round without an end")

    def step(self, **options: bool) -> None:
        """A round, and on to the next end of a job."""
        self.turn(**options)
        if self.running:
            self.running.sort()
            self.now = self.running[0][0]
            while self.running and self.running[0][0] <= self.now:
                _, at = self.running.pop(0)
                self.used[self.lines[at].pool] -= self.lines[at].cost
        else:
            self.now += LOOK_EVERY


def one_pool(slots: int, *lines: Line, jobs: Sequence[int], seconds: Callable[[int], float]) -> World:
    return World([Share(slots, slots, slots)], list(lines), slots, dict(enumerate(jobs)), seconds)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=4), st.integers(1, 30), st.integers(0, 2**16))
def test_long_run_shares_follow_weights_within_a_tenth(weights: list[int], slots: int, seed: int) -> None:
    chance = random.Random(seed)
    lines = [Line(Queue(0, (str(at),), weight)) for at, weight in enumerate(weights)]
    world = one_pool(slots, *lines, jobs=[10**6] * len(weights), seconds=lambda _: chance.uniform(0.5, 1.5))
    while sum(world.began.values()) < 300 * len(weights):
        world.step(everyone=False)
    for at, weight in enumerate(weights):
        part = world.began[at] / sum(world.began.values())
        assert part == pytest.approx(weight / sum(weights), rel=0.1, abs=0.01)


def test_a_queue_that_was_empty_has_no_claim_on_the_time_since() -> None:
    lines = [Line(Queue(0, (name,))) for name in "ab"]
    world = one_pool(4, *lines, jobs=[10**6, 0], seconds=lambda _: 1.0)
    for _ in range(100):
        world.step()
    world.jobs[1] = 10**6
    world.began.clear()
    for _ in range(20):
        world.step()
    assert world.began[0] == pytest.approx(world.began[1], abs=8)


def test_strict_queues_are_served_in_their_order() -> None:
    lines = [Line(Queue(0, (name,), place=place)) for place, name in enumerate("abc")]
    world = one_pool(3, *lines, jobs=[30, 30, 30], seconds=lambda _: 1.0)
    while sum(world.began.values()) < 90:
        world.step()
    assert list(world.order) == sorted(world.order)


@settings(max_examples=20)
@given(st.integers(2, 12), st.integers(1, 24), st.integers(0, 2**16))
def test_a_job_of_several_slots_is_not_starved_by_others(cost: int, more: int, seed: int) -> None:
    """Each slot that falls free would do for one of the 1,000,000 light jobs."""
    chance = random.Random(seed)
    queue = Queue(0, ("a",))
    light, heavy = Line(queue), Line(queue, cost)
    world = one_pool(cost + more, light, heavy, jobs=[10**6, 50], seconds=lambda _: chance.uniform(0.2, 1.8))
    while world.began[1] < 50 and world.now < 1000:
        world.step(everyone=False)
    assert world.began[1] == 50
    assert world.now < 50 * 2 * (LOOK_EVERY + 2)
    assert world.began[0] >= 50  # nor they by it


def test_slots_are_not_gathered_for_jobs_that_are_not_there() -> None:
    queue = Queue(0, ("a",))
    world = one_pool(4, Line(queue), Line(queue, 4), jobs=[10**6, 0], seconds=lambda _: 1.0)
    chance = random.Random(1)
    world.seconds = lambda _: chance.uniform(0.5, 1.5)
    for _ in range(400):
        world.step(everyone=False)
        assert sum(world.used) >= 3 or not world.jobs
    assert 1 < world.looks <= world.now / LOOK_EVERY + 1


def test_slots_are_gathered_ever_more_seldom_for_jobs_that_cannot_be_had() -> None:
    """Ready, as a look says, and locked, as a claim finds."""
    queue = Queue(0, ("a",))
    light, heavy = Line(queue), Line(queue, 4)
    now, looks, used = 0.0, 0, 1
    for _ in range(400):
        turns = Round([light, heavy], everyone=True, heavy=True, now=now)
        while (turn := turns.next([Share(4, 4, 4)], rooms([Share(4, 4, 4)], [used], 4), [used])) is not None:
            if not turn.slots:
                looks += 1
                turns.saw(heavy, ready=True)
            elif turn.line is heavy:
                turns.claimed(heavy, 1, 0)
            else:
                turns.claimed(light, turn.slots, turn.slots)
                used += turn.slots
        used = max(0, used - 1) if used == 4 else 0
        now += 0.25
    assert looks < 20


def test_while_memory_is_short_only_light_jobs_begin() -> None:
    queue = Queue(0, ("a",))
    world = one_pool(8, Line(queue), Line(queue, 4), jobs=[100, 100], seconds=lambda _: 1.0)
    for _ in range(5):
        world.step(heavy=False)
    assert world.began[0]
    assert not world.began[1]
    world.step(heavy=True)
    world.step(heavy=True)
    assert world.began[1]


def test_one_below_its_own_goes_before_one_that_borrows() -> None:
    """Both have jobs without end; what was borrowed comes back as jobs end."""
    lines = [Line(Queue(0, ("fast",))), Line(Queue(1, ("bulk",)))]
    world = World([Share(20, 10, 20), Share(4, 2, 12)], lines, 24, {0: 0, 1: 10**6}, lambda _: 1.0)
    for _ in range(10):
        world.step()
    world.turn()
    assert world.used == [0, 12]
    world.jobs[0] = 10**6
    world.turn()
    assert world.used == [12, 12]
    world.step()
    world.turn()
    assert world.used == [20, 4]


def test_one_whose_jobs_end_at_once_leaves_the_others_their_turns() -> None:
    shares, lines = [Share(20, 10, 20), Share(4, 2, 4)], [Line(Queue(0, ("flood",))), Line(Queue(1, ("long",)))]
    turns = Round(lines, everyone=True, heavy=True, now=0.0)
    used, had = [0, 2], []
    for _ in range(6):
        turn = turns.next(shares, rooms(shares, used, 24), used)
        assert turn is not None
        had.append(turn.line.pool)
        turns.claimed(turn.line, 1, 1)  # and it has ended
    assert had == [0, 1] * 3


def test_slots_that_one_gathers_are_lent_to_nobody() -> None:
    ticks = iter(range(1, 10**9))
    lines = [Line(Queue(0, ("a",))), Line(Queue(0, ("a",)), 4), Line(Queue(1, ("b",)))]
    lines[1].queue = lines[0].queue
    world = World([Share(4, 0, 4), Share(1, 0, 5)], lines, 5, {0: 10**6, 1: 20, 2: 10**6}, lambda at: 0.5 + next(ticks) % 7 / 7)
    while world.began[1] < 20 and world.now < 500:
        world.step(everyone=False)
    assert world.began[1] == 20

"""When a claim names its lanes."""

from dataclasses import dataclass
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from jobwell.core.marks import LEAST_PAUSE, LONGEST_LAG, MANY_READS, MOST_LANES, SHORTEST_LAG, Marks

ONE = UUID(int=1)


@dataclass
class Job:
    ready_us: int
    id: UUID = ONE
    reads: int = 10
    tenant: str = ""
    queue: str = "default"
    rank: int = 100
    gate: int = 1


LANE = ("default", 100, 1, "")


def test_a_clean_table_is_always_looked_at_whole() -> None:
    marks = Marks()
    for now in range(10):
        assert marks.lanes(float(now)) is None
        marks.learn([Job(now)], whole=True, now=float(now), took=0.001)
    assert not marks.on


def test_many_dead_entries_turn_marks_on_and_a_whole_look_that_reads_few_turns_them_off() -> None:
    marks = Marks()
    marks.learn([Job(50_000_000, reads=MANY_READS * 10)], whole=True, now=0.0, took=0.01)
    assert marks.lanes(0.5) == [(LANE, (50_000_000, ONE))]
    assert marks.lag == LONGEST_LAG
    assert marks.lanes(LEAST_PAUSE) is None
    marks.learn([Job(60_000_000, reads=5)], whole=True, now=1.0, took=0.01)
    assert marks.lanes(1.1) is None
    assert not marks.on


def test_the_lag_shrinks_while_much_is_read_and_grows_back() -> None:
    marks = Marks()
    marks.learn([Job(10**9, reads=MANY_READS * 10)], whole=True, now=0.0, took=0.0)
    for _ in range(40):
        marks.learn([Job(10**9, reads=MANY_READS * 10)], whole=False, now=0.1, took=0.0)
    assert marks.lag == SHORTEST_LAG
    for _ in range(60):
        marks.learn([Job(10**9, reads=1)], whole=False, now=0.1, took=0.0)
    assert marks.lag == LONGEST_LAG


def test_named_looks_move_marks_forward_only_and_whole_ones_also_back() -> None:
    marks = Marks()
    marks.learn([Job(100, reads=10**6)], whole=True, now=0.0, took=0.0)
    marks.learn([Job(50)], whole=False, now=0.0, took=0.0)
    assert marks.lanes(0.1) == [(LANE, (100, ONE))]
    marks.learn([Job(50, reads=10**6)], whole=True, now=0.0, took=0.0)
    assert marks.lanes(0.1) == [(LANE, (50, ONE))]


def test_the_mark_of_a_claim_is_the_last_of_its_lane_in_whatever_order_the_rows_come() -> None:
    """Thousands of one bulk have one time: the id tells which was the last."""
    marks = Marks()
    jobs = [Job(7, UUID(int=n), reads=10**6, tenant=tenant) for n, tenant in ((3, "a"), (9, "b"), (5, "a"), (4, "a"))]
    marks.learn(jobs, whole=True, now=0.0, took=0.0)
    assert dict(marks.lanes(0.1) or []) == {
        ("default", 100, 1, "a"): (7, UUID(int=5)),
        ("default", 100, 1, "b"): (7, UUID(int=9)),
    }
    marks.learn(jobs[:1], whole=False, now=0.0, took=0.0)
    assert dict(marks.lanes(0.1) or [])["default", 100, 1, "a"] == (7, UUID(int=5))


def test_an_empty_whole_look_keeps_what_is_known() -> None:
    marks = Marks()
    marks.learn([Job(100, reads=10**6)], whole=True, now=0.0, took=0.0)
    marks.learn([], whole=True, now=2.0, took=0.5)
    assert marks.on
    assert marks.lanes(11.9) is not None
    assert marks.lanes(12.1) is None  # twenty times what the look took


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 10**15), st.booleans()), max_size=600))
def test_lanes_are_bounded_and_marks_never_stand_before_what_was_taken(taken: list[tuple[str, int, bool]]) -> None:
    marks = Marks()
    for tenant, at, whole in taken:
        marks.learn([Job(at, reads=10**6, tenant=tenant)], whole=whole, now=0.0, took=0.0)
        named = dict(marks.lanes(0.5) or [])
        assert len(named) <= MOST_LANES
        if marks.on:
            # The whole look sets exactly, the named one only forward: never above the largest job taken from the lane.
            assert named["default", 100, 1, tenant] <= (max(when for name, when, _ in taken if name == tenant), ONE)

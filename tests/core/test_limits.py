"""Limits and rates as they are written, and what a rate promises for any times of claims."""

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobwell import App
from jobwell.core.errors import DeclarationError
from jobwell.core.limits import Declared, Limit, Rate, Tier, declared, edition, rate, rates, tenants
from jobwell.core.limits import given as both
from tests.core.windows import charged, fullest, room, starts

READ = {
    "10/s": (10, 1), "300/min": (300, 60), "1_000/h": (1000, 3600), "1000/h": (1000, 3600), "5/10s": (5, 10), "20/day": (20, 86400),
    " 7 / 2 min ": (7, 120), "1/D": (1, 86400), "3/SEC": (3, 1), "3/second": (3, 1), "3/m": (3, 60), "3/minute": (3, 60),
    "3/hour": (3, 3600), "1/31d": (1, 31 * 86400), "1000000/s": (1_000_000, 1),
}  # fmt: skip
UNREADABLE = [
    "", "10", "10/", "/s", "ten/s", "10/0s", "0/s", "-1/s", "1.5/s", "10/week", "10/ms", "10/1.5s", "10 per s", "1000001/s", "1/32d",
    "1/s/s", "10/s burst 3", "_/s", 10, None, b"10/s", True,
]  # fmt: skip


@pytest.mark.parametrize("written", READ)
def test_a_rate_is_read_as_people_write_it(written: str) -> None:
    assert rate(written) == Rate(READ[written][0], float(READ[written][1]))


@pytest.mark.parametrize("written", UNREADABLE, ids=repr)
def test_what_is_no_rate_is_refused_in_words(written: Any) -> None:
    with pytest.raises(DeclarationError, match=r"rate"):
        rate(written)


@pytest.mark.parametrize(
    "wrong",
    [
        (0, 1), (-1, 1), (True, 1), (1.0, 1), ("1", 1), (1_000_001, 1), (1, 0), (1, 0.09), (1, -1), (1, 31 * 86400 + 1), (1, float("nan")),
        (1, float("inf")), (5, 1, 0), (5, 1, 6), (5, 1, -1), (5, 1, True), (5, 1, 1.5),
    ],
)  # fmt: skip
def test_a_rate_out_of_range_is_refused(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(DeclarationError):
        Rate(*wrong)


@pytest.mark.parametrize("written", ["10/s", "300/min", "1000/h", "20/day", "5/10s", "7/2m"])
def test_a_rate_is_shown_so_that_it_can_be_read_again(written: str) -> None:
    assert rate(str(rate(written))) == rate(written)


def test_several_windows_are_all_kept_each_once_in_their_order() -> None:
    assert rates(None) == ()
    assert rates("10/s") == rates(Rate(10, 1)) == (Rate(10, 1),)
    assert rates(["10/s", Rate(1000, 3600), "10/1s"]) == (Rate(10, 1), Rate(1000, 3600))


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"rate": ()}, {"concurrency": -1}, {"concurrency": 1.0}, {"concurrency": True}, {"concurrency": "3"}, {"concurrency": 1_000_001},
        {"concurrency": 1, "per": "planet"}, {"concurrency": 1, "rate": "fast"},
    ],
)  # fmt: skip
def test_a_limit_that_says_nothing_or_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        Limit(**wrong)


def test_a_limit_of_nothing_holds_everything() -> None:
    assert Limit(0).concurrency == 0


def test_the_short_form_and_the_long_one_go_together() -> None:
    more = Limit(1, per="host")
    assert both(5, "10/s", [more]) == (Limit(5, "10/s"), more)
    assert both(None, None, [more]) == (more,)
    assert [row.per for row in declared("resource", "sms", both(5, None, [more]))] == ["fleet", "host"]


@pytest.mark.parametrize(
    ("kind", "limits"), [("task", [Limit(1), Limit(2)]), ("queue", [Limit(1, per="host")] * 2), ("tenant", [Limit(1, per="tenant")])]
)  # fmt: skip
def test_two_limits_for_the_same_are_refused(kind: Any, limits: list[Limit]) -> None:
    with pytest.raises(DeclarationError):
        declared(kind, "x", limits)


NOTHING: dict[str, Any] = {"default": 1, "weights": {}, "tiers": {}, "members": {}, "limits": {}}
TENANTS: list[tuple[dict[str, Any], dict[str, tuple[Any, ...]]]] = [
    ({}, {}),
    ({"default": 2}, {"*": (None, (), 2.0)}),
    ({"default": Tier(1, 5)}, {"*": (5, (), 1.0)}),
    ({"weights": {"acme": 3}}, {"acme": (None, (), 3.0)}),
    ({"limits": {"acme": Limit(10, "5/s")}}, {"acme": (10, (Rate(5, 1),), None)}),
    (
        {"tiers": {"gold": Tier(5, 20, "9/s")}, "members": {"acme": "gold", "zoo": "gold"}, "weights": {"zoo": 7}},
        {"acme": (20, (Rate(9, 1),), 5.0), "zoo": (20, (Rate(9, 1),), 7.0)},
    ),
    ({"tiers": {"gold": Tier(5, 20)}, "members": {"acme": "gold"}, "limits": {"acme": Limit(1)}}, {"acme": (1, (), 5.0)}),
    ({"default": 1, "limits": {"*": Limit(3)}}, {"*": (3, (), None)}),
]


@pytest.mark.parametrize(("said", "rows"), TENANTS)
def test_tenants_as_rows(said: dict[str, Any], rows: dict[str, tuple[Any, ...]]) -> None:
    found = tenants(**(NOTHING | said))
    assert {row.name: (row.concurrency, row.rates, row.weight) for row in found} == rows
    assert {(row.kind, row.per) for row in found} <= {("tenant", "fleet")}


@pytest.mark.parametrize(
    "said",
    [
        {"members": {"acme": "gold"}}, {"weights": {"acme": 0}}, {"weights": {"acme": -1}}, {"weights": {"acme": float("nan")}},
        {"weights": {"acme": True}}, {"weights": {"acme": "3"}}, {"weights": {"acme": 1001}}, {"default": 0},
        {"default": Tier(concurrency=-1)}, {"limits": {"acme": Limit(1, per="host")}},
        {"tiers": {"gold": Tier(0)}, "members": {"acme": "gold"}},
    ],
)  # fmt: skip
def test_tenants_that_make_no_sense_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        tenants(**(NOTHING | said))


def test_an_edition_is_what_is_declared_in_whatever_order() -> None:
    rows = [Declared("task", "a", concurrency=1), Declared("queue", "a", concurrency=1), Declared("task", "a", "host", 1)]
    assert edition(rows) == edition(reversed(rows))
    others = [
        rows[:2],
        [*rows[:2], Declared("task", "a", "host", 2)],
        [*rows[:2], Declared("task", "a", "host", 1, rates("1/s"))],
        [],
    ]
    assert len({edition(rows), *map(edition, others)}) == 5


def test_an_app_refuses_what_contradicts_itself() -> None:
    app = App()
    app.resource("sms", concurrency=5)
    app.resource("sms", concurrency=5)  # a module that is imported twice
    with pytest.raises(DeclarationError, match="twice"):
        app.resource("sms", concurrency=6)
    with pytest.raises(DeclarationError, match="did you mean 'default'"):
        app.limit_queue("defalt", concurrency=1)

    @app.task(resources=("smss",))
    async def send() -> None: ...

    with pytest.raises(DeclarationError, match="did you mean 'sms'"):
        app.limits_declared()


def test_an_app_declares_everything_once() -> None:
    app = App()
    app.resource("sms", concurrency=5, rate=("10/s", "1000/h"), limits=[Limit(rate="1/s", per="tenant")])
    app.limit_queue("default", concurrency=4)
    app.tenants(weights={"acme": 3})

    @app.task(resources=("sms",), limits=[Limit(1, per="host")])
    async def send() -> None: ...

    assert {(row.kind, row.name, row.per) for row in app.limits_declared()} == {
        ("resource", "sms", "fleet"), ("resource", "sms", "tenant"), ("queue", "default", "fleet"), ("tenant", "acme", "fleet"),
        ("task", app.limits_declared()[-2].name, "host"),
    }  # fmt: skip


some_rate = st.builds(Rate, st.integers(1, 200), st.sampled_from([0.1, 1.0, 10.0, 60.0, 3600.0]))
bursty = st.builds(
    lambda rate, part: Rate(rate.count, rate.seconds, max(1, round(part * rate.count))), some_rate, st.floats(0, 1)
)
claims = st.lists(st.tuples(st.floats(0, 1) | st.just(0.0), st.integers(1, 200)), min_size=1, max_size=60)


@given(st.lists(some_rate | bursty, min_size=1, max_size=3), claims, st.sampled_from([0.01, 0.3, 3.0]))
def test_no_window_ever_holds_more_than_the_rate(wanted: list[Rate], gaps: list[tuple[float, int]], pace: float) -> None:
    """Whenever claims come, and however much they want: also where they come in swarms, or after long pauses."""
    times = accumulate(gap * pace * min(each.seconds / each.count**0.5 for each in wanted) for gap, _ in gaps)
    found = starts(wanted, zip(times, (want for _, want in gaps), strict=True))
    for each in wanted:
        assert fullest(found, each.seconds) <= each.count, each


@settings(max_examples=40)
@given(some_rate, st.lists(st.floats(0, 1), min_size=50, max_size=50))
def test_nearly_all_of_a_rate_is_used_by_claims_that_come_a_little_late(wanted: Rate, late: list[float]) -> None:
    """Each claim is made when the wait is over, and up to a hundredth of the window later: 10 ms of a second."""
    due, now, started, number = [0.0], 0.0, 0, 0
    while now < 4 * wanted.seconds:
        free, wait = room([wanted], due, now, 10**6)
        if free:
            due, started = charged([wanted], due, now, free), started + free
            _, wait = room([wanted], due, now, 1)
        now += wait + 1e-6 + 0.01 * wanted.seconds * late[number % 50]
        number += 1
    assert started >= 0.95 * 4 * wanted.count - 1

"""Pools as text and as values, their time tables, and what is refused."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobwell import Pool, SettingsError
from jobwell.core.pools import DAY, parse, peak, queues_of, read
from jobwell.core.shares import Share

ALMATY, BERLIN = ZoneInfo("Asia/Almaty"), ZoneInfo("Europe/Berlin")
NIGHTLY = Pool("heavy", queues=["bulk"], slots=2, hours={"22:00-06:00": 16}, zone="Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "pool"),
    [
        ("fast=critical,notifications:20", Pool("fast", queues=["critical", "notifications"], slots=20)),
        ("heavy=bulk:4..12", Pool("heavy", queues="bulk", slots=4, most=12)),
        ("fast=critical>notifications:20", Pool("fast", queues=["critical", "notifications"], slots=20, strict=True)),
        ("fast=critical*3,notifications*1:20", Pool("fast", queues={"critical": 3, "notifications": 1}, slots=20)),
        ("rest=*:10", Pool("rest", queues="*", slots=10)),
        ("eu=orders:eu,a.b-1:20;least=15", Pool("eu", queues=["orders:eu", "a.b-1"], slots=20, least=15)),
        ("heavy=bulk:2;22:00-06:00=16;zone=Europe/Berlin", NIGHTLY),
        ("heavy = bulk : 2 ; 22:00 – 06:00 → 16 ; zone = Europe/Berlin", NIGHTLY),
        ("heavy=bulk:0..3;00:00-24:00=1..2;zone=UTC", Pool("heavy", queues=["bulk"], slots=0, most=3, hours={"00:00-24:00": (1, 2)}, zone="UTC")),
    ],
)  # fmt: skip
def test_text_and_value_are_the_same(text: str, pool: Pool) -> None:
    assert parse(text) == (pool,)
    assert parse(str(pool)) == (pool,)


def test_several_in_one_text_in_a_list_and_in_a_table() -> None:
    two = (Pool("fast", queues=["critical", "default"], slots=20), NIGHTLY)
    assert parse("fast = critical, default : 20\nheavy=bulk:2; 22:00-06:00=16; zone=Europe/Berlin") == two
    assert read(f"{two[0]} {two[1]}") == read([str(two[0]), two[1]]) == read(two) == two
    assert read({"fast": "critical,default:20", "heavy": "bulk:2;22:00-06:00=16;zone=Europe/Berlin"}) == two
    assert read(()) == read("") == ()


NAMES = st.builds("".join, st.tuples(st.sampled_from("abz"), st.text("ab09_.:-", max_size=8)))


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    edges = sorted(draw(st.lists(st.integers(0, DAY - 1), max_size=6, unique=True)))
    turned = edges[-1:] + edges[:-1] if draw(st.booleans()) else edges
    slots = st.integers(1, 50)
    hours = {
        f"{a // 60:02}:{a % 60:02}-{b // 60:02}:{b % 60:02}": (own := draw(slots), own + draw(slots))
        for a, b in zip(turned[::2], turned[1::2], strict=False)
    }
    own, weighted = draw(slots), draw(st.booleans())
    return Pool(
        draw(NAMES).replace(".", "_").replace(":", "-"),
        queues={name: draw(st.integers(1, 9)) for name in names} if weighted else names,
        slots=own, most=own + draw(st.integers(0, 9)), least=draw(st.none() | st.integers(0, own)), hours=hours,
        strict=not weighted and len(names) > 1 and draw(st.booleans()),
        zone=draw(st.sampled_from(["UTC", "Asia/Almaty", "America/New_York"])),
    )  # fmt: skip


@settings(max_examples=30)
@given(pools())
def test_every_pool_can_be_written_and_read(pool: Pool) -> None:
    assert parse(str(pool)) == (pool,)


@given(st.text(alphabet="abq=:,;>*.-0159 →–", max_size=40))
def test_whatever_is_typed_is_read_or_refused_in_words(text: str) -> None:
    try:
        found = read(text)
    except SettingsError as error:
        assert "pool" in error.message
    else:
        assert read(" ".join(map(str, found))) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fast", "name=queues:slots"),
        ("fast=critical", "name=queues:slots"),
        ("=critical:4", "its name"),
        ("fast=:4", "names of queues"),
        ("fast=a,a:4", "each once"),
        ("fast=a:many", "no slots"),
        ("fast=a:12..4", "most no fewer"),
        ("fast=a:20000", "from 0 to 10,000"),
        ("fast=a:0", "never has a slot"),
        ("fast=a:4;least=5", "from 0 to its 4"),
        ("fast=a:4;least=x", "whole number"),
        ("fast=a>b,c:4", "not both"),
        ("fast=a*2,b:4", "each has one"),
        ("fast=a*0:4", "from 1 to 1000"),
        ("fast=*,a*2:4", "each has one"),
        ("fast=a:4;22:00-06:00=16", "zone=Asia/Almaty"),
        ("fast=a:4;22:00-06:00=16;zone=Mars/Olympus", "no zone 'Mars/Olympus'"),
        ("fast=a:4;22:00-22:00=16;zone=UTC", "no span"),
        ("fast=a:4;22:00-25:00=16;zone=UTC", "no span"),
        ("fast=a:4;22:61-23:00=16;zone=UTC", "no span"),
        ("fast=a:4;22:00-06:00=16;05:59-07:00=1;zone=UTC", "at 05:59 two entries"),
        ("fast=a:4;night=16", "neither a time table"),
        ("fast=a:4 fast=b:4", "two pools have the name 'fast'"),
        ("fast=a:4 heavy=b,a:4", "the queue 'a' is in the pools 'fast' and 'heavy'"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read(text)
    assert words in refused.value.message


def test_the_rest_is_what_no_other_names() -> None:
    declared = ("critical", "default", "bulk", "reports")
    assert queues_of(parse("fast=critical:2 rest=*:1 heavy=bulk:1"), declared) == [
        ("critical",),
        ("default", "reports"),
        ("bulk",),
    ]
    with pytest.raises(SettingsError, match="stands for no queue"):
        queues_of(parse("all=critical,default,bulk,reports:4 rest=*:1"), declared)


# --- time tables ---------------------------------------------------------------------------------------------------------


def own(pool: Pool, *clock: int, zone: ZoneInfo = BERLIN, fold: int = 0) -> int:
    return pool.share(datetime(*clock, tzinfo=zone, fold=fold).astimezone(UTC)).own


@pytest.mark.parametrize(
    ("hour", "minute", "slots"), [(21, 59, 2), (22, 0, 16), (23, 59, 16), (0, 0, 16), (5, 59, 16), (6, 0, 2), (12, 0, 2)]
)
def test_over_midnight_by_the_clock_of_the_zone(hour: int, minute: int, slots: int) -> None:
    assert own(NIGHTLY, 2026, 1, 15, hour, minute) == slots
    assert own(NIGHTLY, 2026, 7, 15, hour, minute) == slots  # in summer, too


def test_the_night_of_a_zone_is_not_that_of_another() -> None:
    there = Pool("heavy", queues=["bulk"], slots=2, hours={"22:00-06:00": 16}, zone="Asia/Almaty")
    assert own(there, 2026, 1, 15, 23, zone=ALMATY) == 16
    assert own(there, 2026, 1, 15, 19) == 16  # 23:00 there
    assert own(there, 2026, 1, 15, 5) == 2


def test_the_change_to_summer_shortens_the_night_and_that_to_winter_prolongs_it() -> None:
    """In Berlin 2026-03-29 has no 02:00 to 03:00, and 2026-10-25 has it twice."""

    def hours(day: datetime) -> float:
        return sum(NIGHTLY.share(day + timedelta(minutes=minute)).own == 16 for minute in range(DAY)) / 60

    assert hours(datetime(2026, 3, 28, 12, tzinfo=UTC)) == 7
    assert hours(datetime(2026, 10, 24, 12, tzinfo=UTC)) == 9
    assert hours(datetime(2026, 6, 1, 12, tzinfo=UTC)) == 8


def test_an_entry_within_the_lost_or_the_doubled_hour() -> None:
    small = Pool("heavy", queues=["bulk"], slots=2, hours={"02:00-03:00": 16}, zone="Europe/Berlin")
    lost, doubled = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert sum(small.share(lost + timedelta(minutes=minute)).own == 16 for minute in range(DAY)) == 0
    assert sum(small.share(doubled + timedelta(minutes=minute)).own == 16 for minute in range(DAY)) == 120
    assert own(small, 2026, 10, 25, 2, 30, fold=0) == own(small, 2026, 10, 25, 2, 30, fold=1) == 16


@given(st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)))
def test_the_table_agrees_with_the_clock_on_the_wall(moment: datetime) -> None:
    night = not 6 <= moment.astimezone(BERLIN).hour < 22
    assert NIGHTLY.share(moment) == (Share(16, 8, 16) if night else Share(2, 1, 2))


def test_what_is_never_lent() -> None:
    assert Pool("a", queues="a", slots=5).share(datetime(2026, 1, 1, tzinfo=UTC)) == Share(5, 3, 5)
    some = Pool("a", queues="a", slots=5, most=9, least=4, hours={"00:00-12:00": (2, 3)}, zone="UTC")
    assert some.share(datetime(2026, 1, 1, 11, tzinfo=UTC)) == Share(2, 2, 3)
    assert some.share(datetime(2026, 1, 1, 12, tzinfo=UTC)) == Share(5, 4, 9)


def test_the_peak_is_that_of_one_moment() -> None:
    day = "a=a:20;22:00-06:00=4;zone=UTC"
    assert peak(parse(f"{day} b=b:4;22:00-06:00=20;zone=UTC")) == 24
    assert peak(parse(f"{day} b=b:4;21:00-06:00=20;zone=UTC")) == 40
    assert peak(parse(f"{day} b=b:4;22:00-06:00=20;zone=Europe/Berlin")) == 40
    assert peak(parse("a=a:20 b=b:3")) == 23

"""Classes and values of every kind that a payload may hold, and what it means that one came back unchanged."""

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from typing import Any, Generic, Literal, NamedTuple, NewType, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, RootModel
from typing_extensions import TypedDict

T = TypeVar("T")


class Colour(Enum):
    RED = "r"
    BLUE = "b"


class Level(IntEnum):
    LOW = 1
    HIGH = 9


class Plan(StrEnum):
    FREE = "free"
    PAID = "paid"


class Right(Flag):
    READ = 1
    WRITE = 2
    OWN = 4


class Mask(IntFlag):
    A = 1
    B = 2


Shade = NewType("Shade", Colour)


class Pair(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Price:
    amount: Decimal
    currency: str = "KZT"


@dataclass
class Line:
    article: str
    price: Price
    count: int = 1
    total: Decimal = field(init=False)

    def __post_init__(self) -> None:
        self.total = self.price.amount * self.count


@dataclass
class Order:
    at: datetime
    lines: list[Line]
    colour: Colour | None = None


@dataclass(frozen=True, slots=True)
class Slotted:
    id: UUID
    tags: frozenset[str] = frozenset()


@dataclass
class Numbered:
    """Its `__post_init__` changes a field, so running it twice would show."""

    number: int

    def __post_init__(self) -> None:
        self.number += 1


@dataclass
class Node:
    name: str
    children: list["Node"] = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    item: T


class Address(BaseModel):
    city: str
    post_code: str = Field(alias="postCode")


class Customer(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: UUID
    address: Address
    since: date
    colours: set[Colour] = set()


class Crossed(BaseModel):
    """Each field's alias is the name of the other."""

    low: int = Field(alias="high")
    high: int = Field(alias="low")


class Names(RootModel[list[str]]):
    pass


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    id: int


class Page(BaseModel, Generic[T]):
    items: list[T]


class Row(TypedDict):
    sku: str
    price: Price


class Tree(TypedDict):
    name: str
    children: list["Tree"]


BERLIN, ALMATY, LORD_HOWE = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Almaty"), ZoneInfo("Australia/Lord_Howe")
SOME_ID = UUID("0199f5a1-0000-7000-8000-0123456789ab")
LINE = Line("pen", Price(Decimal("1.10")), 3)

# (what it is, how the parameter is annotated, the value)
ROUND_TRIPS: list[tuple[str, Any, Any]] = [
    ("text", str, "día — 🛠️ \u2028 \x01 \x7f 'quoted' \\ \"$\" \ufffd"),
    ("empty text", str, ""),
    ("true", bool, True),
    ("none", int | None, None),
    ("negative int", int, -17),
    ("int at 2^53", int, 2**53),
    ("int above 2^53", int, 2**53 + 1),
    ("int above 2^63", int, 2**63 + 1),
    ("int below -2^64", int, -(2**70)),
    ("float", float, 0.1),
    ("whole float", float, 3.0),
    ("minus zero", float, -0.0),
    ("tiny float", float, 5e-324),
    ("nan", float, float("nan")),
    ("infinity", float, float("inf")),
    ("minus infinity in a dict", dict[str, float], {"a": float("-inf")}),
    ("datetime UTC", datetime, datetime(2026, 1, 28, 9, 30, 0, 123456, tzinfo=UTC)),
    ("datetime naive", datetime, datetime(2026, 1, 28, 9, 30)),
    ("datetime naive, fold", datetime, datetime(2026, 1, 28, 9, 30, fold=1)),
    ("datetime in a zone", datetime, datetime(2026, 1, 28, 9, 30, tzinfo=ALMATY)),
    ("datetime in the first doubled hour", datetime, datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN)),
    ("datetime in the second doubled hour", datetime, datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=1)),
    ("datetime in a gap", datetime, datetime(2025, 3, 30, 2, 30, tzinfo=BERLIN)),
    ("datetime, half-hour summer time", datetime, datetime(2026, 4, 5, 1, 45, tzinfo=LORD_HOWE, fold=1)),
    ("datetime at a fixed offset", datetime, datetime(2026, 1, 28, tzinfo=timezone(timedelta(hours=-9, minutes=-30)))),
    ("datetime, offset of seconds", datetime, datetime(1, 1, 1, tzinfo=timezone(timedelta(seconds=18182, microseconds=7)))),
    ("date", date, date(2026, 2, 28)),
    ("date or datetime", datetime | date, date(2026, 2, 28)),
    ("time", time, time(23, 59, 59, 999999)),
    ("time, fold and offset", time, time(1, 30, tzinfo=timezone(timedelta(hours=5)), fold=1)),
    ("timedelta", timedelta, timedelta(days=-1, microseconds=1)),
    ("longest timedelta", timedelta, timedelta.max),
    ("UUID", UUID, SOME_ID),
    ("Decimal", Decimal, Decimal("1.10")),
    ("Decimal, exponent", Decimal, Decimal("1E+5")),
    ("Decimal nan, anywhere", Any, Decimal("NaN")),
    ("Enum", Colour, Colour.RED),
    ("IntEnum", Level, Level.HIGH),
    ("StrEnum", Plan, Plan.PAID),
    ("IntEnum or int, the enum", Level | int, Level.LOW),
    ("IntEnum or int, the int", Level | int, 1),
    ("StrEnum or str, the text", Plan | str, "paid"),
    ("Enum of a literal", Literal[Colour.RED, Colour.BLUE], Colour.BLUE),
    ("Enum behind a NewType", Shade, Colour.RED),
    ("Flag", Right, Right.READ),
    ("Flags together", Right, Right.READ | Right.OWN),
    ("no Flag", Right, Right(0)),
    ("IntFlag with an unknown bit", Mask, Mask(8) | Mask.A),
    ("bytes", bytes, b"\x00\xff\n"),
    ("no bytes", bytes, b""),
    ("list", list[int], [1, 2, 3]),
    ("tuple", tuple[int, str], (1, "a")),
    ("empty tuple", tuple[int, ...], ()),
    ("set", set[str], {"b", "a"}),
    ("empty set", set[int], set()),
    ("frozenset", frozenset[int], frozenset({3, 1})),
    ("frozensets in a set", set[frozenset[str]], {frozenset({"a", "b"}), frozenset({"c"})}),
    ("dict", dict[str, int], {"b": 1, "a": 2}),
    ("dict with int keys", dict[int, str], {2: "b", 1: "a"}),
    ("dict with tuple keys", dict[tuple[int, int], str], {(1, 2): "a"}),
    ("dict with enum keys", dict[Colour, int], {Colour.BLUE: 1}),
    ("dict with mixed keys", dict[Any, Any], {1: "a", "1": "b", None: "c"}),
    ("dict with a key that looks like a tag", dict[str, Any], {"$uuid": "not one", "plain": 1}),
    ("dict with the empty key", dict[str, int], {"": 1}),
    ("dataclass, frozen", Price, Price(Decimal("1.10"))),
    ("dataclass with init=False", Line, LINE),
    ("dataclass, nested", Order, Order(datetime(2026, 1, 28, tzinfo=ALMATY), [LINE, LINE], Colour.RED)),
    ("dataclass with slots", Slotted, Slotted(SOME_ID, frozenset({"a"}))),
    ("dataclass that changes itself", Numbered, Numbered(1)),
    ("dataclass holding itself", Node, Node("a", [Node("b", [Node("c")])])),
    ("dataclass, generic", Box[Price], Box(Price(Decimal(2)))),
    ("pydantic model, nested, with alias", Customer,
     Customer(id=SOME_ID, address=Address(city="Almaty", postCode="050000"), since=date(2020, 1, 1), colours={Colour.RED})),
    ("pydantic model, aliases crossed", Crossed, Crossed(high=1, low=2)),
    ("pydantic root model", Names, Names(["a", "b"])),
    ("pydantic model, open", Open, Open.model_validate({"id": 1, "more": [Decimal("1.10")]})),
    ("pydantic model, generic", Page[Price], Page[Price](items=[Price(Decimal(1))])),
    ("TypedDict", Row, {"sku": "a", "price": Price(Decimal("0.10"))}),
    ("TypedDict holding itself", Tree, {"name": "a", "children": [{"name": "b", "children": []}]}),
    ("list of unions", list[Price | Colour | int | None], [Price(Decimal(1)), Colour.RED, 5, None]),
    ("everything in lists", Any, [{"a": [(1, {"b": datetime(2026, 1, 1, tzinfo=UTC)})]}, [[{1, 2}]], [[[b"x"]]]]),
]  # fmt: skip


def shape(value: Any) -> Any:
    """Two values have equal shapes only if they are equal and of equal types, all the way down, in equal order."""
    kind = type(value)
    if kind in (list, tuple):
        return kind, tuple(shape(item) for item in value)
    if kind in (set, frozenset):
        return kind, frozenset(shape(item) for item in value)
    if kind is dict:
        return kind, tuple((shape(key), shape(item)) for key, item in value.items())
    if kind in (datetime, time):
        return kind, value.isoformat(), value.fold, type(value.tzinfo), str(value.tzinfo)
    if kind in (float, Decimal):
        return kind, repr(value)
    if dataclasses.is_dataclass(kind):
        return kind, tuple((f.name, shape(getattr(value, f.name))) for f in dataclasses.fields(kind))
    if isinstance(value, BaseModel):
        return kind, tuple((name, shape(item)) for name, item in (value.__dict__ | (value.model_extra or {})).items())
    return kind, value

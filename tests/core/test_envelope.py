"""Arguments as JSON and back (cases H1 and H2): what is listed comes back equal and of the same type, the rest is refused."""

import json
import os
import subprocess
import sys
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import InitVar, dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator

from jobwell.core.envelope import DEEPEST, Known, class_name, decode, encode
from jobwell.core.errors import InvalidArguments
from jobwell.core.signature import Signature
from tests.samples import ALMATY, ROUND_TRIPS, Box, Colour, Level, Line, Names, Numbered, Pair, Plan, Price, Right, shape

KNOWN: Known = {class_name(cls): cls for cls in (Colour, Level, Plan, Right, Price, Line, Numbered, Box, Names)}


def signature_of(annotation: Any) -> Signature:
    """Of a task with one parameter `x` and that type."""

    def task(x: Any) -> None: ...

    task.__annotations__ = {"x": annotation, "return": annotation}
    return Signature(task, "task")


@pytest.mark.parametrize(("annotation", "value"), [case[1:] for case in ROUND_TRIPS], ids=[case[0] for case in ROUND_TRIPS])
class TestRoundTrip:
    def test_an_argument_comes_back_equal_and_of_the_same_type(self, annotation: Any, value: Any) -> None:
        signature = signature_of(annotation)
        stored = signature.encode(signature.bind((value,), {}))
        assert shape(signature.decode(stored.decode())["x"]) == shape(value)

    def test_a_result_comes_back_equal_and_of_the_same_type(self, annotation: Any, value: Any) -> None:
        signature = signature_of(annotation)
        assert shape(signature.decode_result(signature.encode_result(value).decode())) == shape(value)

    def test_the_payload_is_plain_json_in_utf8(self, annotation: Any, value: Any) -> None:
        signature = signature_of(annotation)
        json.loads(signature.encode({"x": value}).decode("utf-8"), parse_constant=pytest.fail)


# --- any nesting of the supported values ---------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
OFFSETS = st.builds(lambda s: timezone(timedelta(seconds=s)), st.integers(-86399, 86399))
HASHABLE = (
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary() | st.decimals(allow_nan=False) | st.uuids()
    | st.dates() | st.timedeltas() | st.times(timezones=st.none() | OFFSETS)
    | st.datetimes(timezones=st.none() | OFFSETS | st.timezones() | st.just(UTC))
    | st.sampled_from([*Colour, *Level, *Plan, *Right, Right.READ | Right.OWN, Right(0)])
    | st.builds(Price, st.decimals(allow_nan=False), TEXT)
)  # fmt: skip
KEYS = st.recursive(HASHABLE, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)
VALUES = st.recursive(
    KEYS | st.builds(Line, TEXT, st.builds(Price, st.decimals(-99, 99, places=2)), st.integers(0, 9)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.sets(KEYS, max_size=4) | st.frozensets(KEYS, max_size=4)
        | st.dictionaries(TEXT | st.just("$set"), inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
        | st.builds(Box, inner)
    ),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=200)
@given(VALUES)
def test_any_nesting_of_supported_values_comes_back_as_it_was(value: Any) -> None:
    stored = encode(value, KNOWN)
    assert shape(decode(stored, KNOWN)) == shape(value)
    assert shape(decode(stored.decode(), KNOWN)) == shape(value)
    assert encode(decode(stored, KNOWN), KNOWN) == stored


ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=10)


@given(st.recursive(ANY_TEXT, lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner) | st.tuples(inner), max_leaves=5))
def test_text_that_postgresql_cannot_hold_is_refused_wherever_it_stands(value: Any) -> None:
    try:
        stored = encode(value, {})
    except InvalidArguments as refused:
        assert "NUL character or a lone surrogate" in refused.message
        assert "\\u0000" in json.dumps(value) or "\\ud" in json.dumps(value)
    else:
        assert b"\\u0000" not in stored
        assert shape(decode(stored, {})) == shape(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(
        TEXT | st.sampled_from(["$enum", "$data", "$flag", "$datetime", "$uuid", "$dict", "$timedelta", "$int", "$set", "$x", "zone",
                                "fold"]), inner), max_leaves=8,
)  # fmt: skip


@settings(max_examples=200)
@given(JSON | st.lists(st.sampled_from(sorted(KNOWN)) | JSON, max_size=3).map(lambda pair: {"$data": pair}))
def test_any_json_is_read_or_refused_as_invalid_arguments(value: Any) -> None:
    with suppress(InvalidArguments):
        decode(json.dumps(value), KNOWN)


@pytest.mark.parametrize("stored", ["", "{", "nonsense", '{"a":}', "\ud800"])
def test_what_is_no_json_is_refused_as_invalid_arguments(stored: str) -> None:
    with pytest.raises(InvalidArguments):
        decode(stored, {})


# --- what is refused, and where it stands --------------------------------------------------------------------------------


class Ours:
    pass


class Article(Ours):
    """As an ORM object would be."""

    id = 7


class Number(int):
    """As the integers of numpy and the like."""


class Name(str):
    __slots__ = ()


class Customer(BaseModel):
    user: Any


def numbers() -> Iterator[int]:
    """A generator."""
    yield 1


@pytest.mark.parametrize(
    "value",
    [lambda: 1, len, print, Ours(), Article(), Ours, int, numbers(), iter([]), range(3), Number(3), Name("a"), 1j, bytearray(b"a"),
     memoryview(b"a"), deque([1]), OrderedDict(a=1), {}.keys(), Pair(1, 2), Exception("x"), Path("/tmp"), Ellipsis, os, Colour,
     Customer(user=1), UTC, ALMATY],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
@pytest.mark.parametrize(
    ("build", "path"),
    [
        (lambda value: value, "x"), (lambda value: [0, {"user": value}], "x[1].user"), (lambda value: {1: [value]}, "x[1][0]"),
        (lambda value: (1, (value,)), "x[1][0]"), (lambda value: {"a": {"b": [[value]]}}, "x.a.b[0][0]"),
        (lambda value: Box([value]), "x.item[0]"),
    ],
    ids=["bare", "list", "dict", "tuple", "deep", "dataclass"],
)  # fmt: skip
def test_what_is_not_listed_is_refused_with_its_path(build: Any, path: str, value: Any) -> None:
    with pytest.raises(InvalidArguments) as refused:
        encode(build(value), KNOWN, "x")
    assert refused.value.path == path
    assert refused.value.message.startswith(f"{path}: a ")
    assert class_name(type(value)) in refused.value.message


def test_an_open_file_is_refused() -> None:
    with Path(__file__).open(encoding="utf-8") as file, pytest.raises(InvalidArguments, match=r"^x\[0\]: a _io.TextIOWrapper"):
        encode([file], {}, "x")


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\ud800", "ok\udcff"])
@pytest.mark.parametrize(
    ("build", "path"),
    [
        (lambda text: text, "x"), (lambda text: ["a", text], "x[1]"), (lambda text: {"a": {"b": text}}, "x.a.b"),
        (lambda text: (text,), "x[0]"), (lambda text: {text}, "x[0]"), (lambda text: Price(Decimal(1), text), "x.currency"),
    ],
)  # fmt: skip
def test_nul_and_lone_surrogates_are_refused_with_their_path(build: Any, path: str, text: str) -> None:
    with pytest.raises(InvalidArguments, match="NUL character or a lone surrogate") as refused:
        encode(build(text), KNOWN, "x")
    assert refused.value.path == path
    refused.value.message.encode()


@pytest.mark.parametrize("text", ["\x00", "\ud800"])
@pytest.mark.parametrize("mapping", [lambda text: {text: 1}, lambda text: {1: 1, text: 1}, lambda text: {(1, text): 1}])
def test_nul_and_lone_surrogates_in_keys_are_refused(mapping: Any, text: str) -> None:
    with pytest.raises(InvalidArguments, match="NUL character or a lone surrogate") as refused:
        encode([mapping(text)], {}, "x")
    assert refused.value.path.startswith("x[0]")
    refused.value.message.encode()


def test_a_list_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.extend([loop, loop])
    with pytest.raises(InvalidArguments, match="holding itself"):
        encode(loop, {}, "x")


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {1: v}, lambda v: {"$a": v}, Box])
def test_the_deepest_nesting_that_is_taken_is_also_read(wrap: Any) -> None:
    value: Any = 1
    for _ in range(DEEPEST):
        value = wrap(value)
    assert shape(decode(encode(value, KNOWN), KNOWN)) == shape(value)
    with pytest.raises(InvalidArguments, match="nested deeper than"):
        encode(wrap(value), KNOWN)


def test_an_integer_beyond_the_interpreters_own_limit_is_refused() -> None:
    with pytest.raises(InvalidArguments, match=r"^x\[0\]: "):
        encode([10**5000], {}, "x")


def test_a_time_of_day_in_a_named_zone_is_refused_as_ambiguous() -> None:
    with pytest.raises(InvalidArguments, match="ambiguous"):
        encode(time(9, tzinfo=ALMATY), {}, "x")


def test_a_zone_without_a_name_is_refused() -> None:
    with Path("/usr/share/zoneinfo/Asia/Almaty").open("rb") as file:
        nameless = type(ALMATY).from_file(file)
    with pytest.raises(InvalidArguments, match="has no name"):
        encode(datetime(2026, 1, 1, tzinfo=nameless), {}, "x")


# --- classes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [Colour.RED, Right.READ, Price(Decimal(1)), Names(["a"])])
def test_a_class_that_the_signature_does_not_name_is_refused(value: Any) -> None:
    with pytest.raises(
        InvalidArguments, match=r"^x\.a: a tests\.samples\.\w+ can be stored only where the task's signature names"
    ):
        encode({"a": value}, {}, "x")


def test_another_class_under_a_known_name_is_refused() -> None:
    impostor = Enum("Colour", {"RED": "r"}, module=Colour.__module__, qualname="Colour")
    with pytest.raises(InvalidArguments, match="can be stored only where"):
        encode(impostor.RED, KNOWN)


@pytest.mark.parametrize(
    "stored",
    [
        '{"$enum":["os.system","x"]}', '{"$enum":["subprocess.Popen","x"]}', '{"$data":["subprocess.Popen",{"args":"true"}]}',
        '{"$data":["builtins.eval",{}]}', '[{"a":{"$data":["antigravity.x",{}]}}]', '{"$flag":["os.system",1]}',
        '{"$enum":["tests.samples.Level.__class__","x"]}', '{"$enum":["tests.samples.Colour","__class__"]}',
        '{"$enum":["tests.samples.Colour","name"]}', '{"$data":["tests.samples.Colour",{"_value_":"x"}]}',
        '{"$enum":["tests.samples.Price","amount"]}', '{"$flag":["tests.samples.Colour","nope"]}', '{"$flag":["tests.samples.Price",1]}',
    ],
)  # fmt: skip
def test_nothing_is_looked_up_outside_the_signature(stored: str) -> None:
    with pytest.raises(InvalidArguments):
        decode(stored, KNOWN)


def test_nothing_is_imported_for_a_stored_payload(tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    code = (
        "from jobwell.core.envelope import decode\n"
        "for tag in ('$enum', '$flag', '$data'):\n"
        '    try: decode(\'{"%s":["trap.Trap",{}]}\' % tag, {})\n'
        "    except Exception as error: assert type(error).__name__ == 'InvalidArguments', error\n"
        "    else: raise SystemExit('accepted')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_member_that_is_gone_is_told() -> None:
    with pytest.raises(InvalidArguments, match=r"tests\.samples\.Colour has no member 'GREEN'"):
        decode('{"$enum":["tests.samples.Colour","GREEN"]}', KNOWN)


@pytest.mark.parametrize(
    ("fields", "said"),
    [('{"amount":{"$decimal":"1"},"vat":3}', "vat"), ('{"currency":"KZT"}', "amount"), ('{"__class__":1,"amount":1}', "__class__")],
)  # fmt: skip
def test_fields_that_do_not_fit_the_dataclass_any_more_are_told(fields: str, said: str) -> None:
    with pytest.raises(InvalidArguments, match=said):
        decode(f'{{"$data":["tests.samples.Price",{fields}]}}', KNOWN)


def test_a_field_with_a_default_that_the_payload_does_not_know_yet_is_filled() -> None:
    assert decode('{"$data":["tests.samples.Price",{"amount":{"$decimal":"1"}}]}', KNOWN) == Price(Decimal(1))


def test_a_model_that_the_payload_does_not_fit_any_more_is_told() -> None:
    known = {class_name(Customer): Customer}
    with pytest.raises(InvalidArguments, match="Customer"):
        decode(f'{{"$data":["{class_name(Customer)}",{{}}]}}', known)


def test_an_unknown_tag_hints_at_a_newer_release() -> None:
    with pytest.raises(InvalidArguments, match=r"unknown tag '\$future'; a newer release"):
        decode('[{"$future":1}]', {})


def test_a_dataclass_that_cannot_be_rebuilt_is_refused_before_it_is_stored() -> None:
    signature = signature_of(Initialised)
    with pytest.raises(Exception, match="InitVar"):
        signature.encode(signature.bind((Initialised(1, 2),), {}))


class Splitting(BaseModel):
    tags: list[str]

    @field_validator("tags", mode="before")
    @classmethod
    def split(cls, value: Any) -> Any:
        return value.split(",")


class Prefixing(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def prefix(cls, value: str) -> str:
        return f"x-{value}"


@pytest.mark.parametrize("value", [Splitting(tags="a,b"), Prefixing(name="a")], ids=lambda value: type(value).__name__)  # type: ignore[arg-type]
def test_a_model_that_would_reach_the_worker_changed_is_refused_before_it_is_stored(value: Any) -> None:
    signature = signature_of(list[type(value)])  # type: ignore[misc]
    with pytest.raises(InvalidArguments, match="^task: x: would not come back as it is") as refused:
        signature.encode({"x": [value]})
    assert refused.value.path == "x"


@dataclass
class Initialised:
    kept: int
    given: InitVar[int]


# --- the bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (2**53, "9007199254740992"), (2**53 + 1, '{"$int":"9007199254740993"}'), ([1, "a", None, True, 0.5], '[1,"a",null,true,0.5]'),
        (datetime(2026, 1, 28, 9, tzinfo=ALMATY), '{"$datetime":"2026-01-28T09:00:00+05:00","zone":"Asia/Almaty"}'),
        (Decimal("1.10"), '{"$decimal":"1.10"}'), (timedelta(days=-1, seconds=1), '{"$timedelta":[-1,1,0]}'), (b"\xff", '{"$bytes":"/w=="}'),
        ((1,), '{"$tuple":[1]}'), ({2, 1}, '{"$set":[1,2]}'), ({1: 2}, '{"$dict":[[1,2]]}'), (float("nan"), '{"$float":"nan"}'),
        (Colour.RED, '{"$enum":["tests.samples.Colour","RED"]}'), (Right.READ | Right.WRITE, '{"$flag":["tests.samples.Right",3]}'),
        (Price(Decimal(1)), '{"$data":["tests.samples.Price",{"amount":{"$decimal":"1"},"currency":"KZT"}]}'),
    ],
)  # fmt: skip
def test_the_form_is_fixed_since_jobs_outlive_releases(value: Any, stored: str) -> None:
    assert encode(value, KNOWN).decode() == stored
    assert shape(decode(stored, KNOWN)) == shape(value)


def test_equal_sets_have_equal_bytes_in_every_process() -> None:
    """Lock keys are made of them. Texts hash differently in each process."""
    code = (
        "from jobwell.core.envelope import encode\n"
        "print(encode({frozenset({'a','z','k'}), frozenset({'b','y','m'}), 'x', 1, (frozenset({'p','q'}),), (frozenset({'o','r'}),)}, {}).decode())"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": str(seed)}, capture_output=True, check=True
        ).stdout
        for seed in range(1, 4)
    }
    assert len(made) == 1

"""A task's contract travels as JSON, and a job made from it is the one that the task's own code would make."""

import datetime as dt
import enum
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NewType
from uuid import UUID

import orjson
import pytest
from pydantic import Field

from jobwell import App, DeclarationError, EnqueueError, InvalidArguments, Lock, NotFound, PayloadTooLarge
from jobwell.core import job as jobs
from jobwell.core import published
from jobwell.core.job import PLAIN, Options
from jobwell.core.published import Published

LIMIT = 10_000
Number = NewType("Number", int)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Place:
    town: str
    floor: int = 0


def task(app: App, **options: Any) -> Any:
    @app.task(name="hr.move", **options)
    async def move(
        number: Number,
        on: dt.datetime,
        pay: Decimal,
        place: Place,
        branch: str | None = None,
        colour: Colour = Colour.RED,
        days: tuple[dt.date, ...] = (),
        key: UUID | None = None,
        note: str = "",
    ) -> None: ...

    return move


@pytest.fixture
def app() -> App:
    return App("postgresql://nobody@nowhere.example/jobs")


def contract(app: App, **options: Any) -> Published:
    return published.read("hr.move", published.publish(task(app, **options).spec))


PLAIN_ARGUMENTS = {"number": 7, "on": "2030-01-31T08:00:00+05:00", "pay": "12.50", "place": {"town": "Almaty"}}


def test_the_contract_comes_back(app: App) -> None:
    found = contract(
        app, queue="bulk", priority=5, timeout="1m", deadline="2h", tenant="branch", lock=Lock("number", "note"), owner="hr"
    )
    assert (found.queue, found.priority, found.timeout, found.deadline, found.owner) == ("bulk", 5, 60.0, 7200.0, "hr")
    assert (found.tenant, found.lock, found.executor, found.gate) == (
        "branch",
        ("number", "note"),
        "async",
        app.catalog["hr.move"].gate,
    )
    assert [name for name, parameter in found.parameters.items() if parameter.required] == ["number", "on", "pay", "place"]
    assert {name: parameter.plain for name, parameter in found.parameters.items() if parameter.plain} == {
        "number": ("integer",), "branch": ("string", "null"), "note": ("string",)}  # fmt: skip
    assert found.parameters["colour"].default == '{"$enum":["tests.core.test_published.Colour","RED"]}'
    assert found.schema is not None
    assert found.schema["properties"]["on"]["format"] == "date-time"


def test_the_gate_is_a_text_since_readers_of_json_lose_digits(app: App) -> None:
    told = orjson.loads(published.publish(task(app).spec))
    assert told["gate"] == str(app.catalog["hr.move"].gate)


def test_a_contract_of_another_form_is_refused_in_words() -> None:
    with pytest.raises(DeclarationError, match="update here"):
        published.read("t", '{"format": 99}')


def test_a_job_from_plain_json_is_the_one_that_the_code_would_make(app: App) -> None:
    known = contract(app, tenant="branch", lock=Lock("number", "note"))
    spec = app.catalog["hr.move"]
    made = published.make(known, PLAIN_ARGUMENTS | {"branch": "north"}, PLAIN, None, LIMIT)
    values = spec.signature.decode(made.args)
    assert values["on"] == dt.datetime(2030, 1, 31, 3, tzinfo=dt.UTC)
    assert (values["pay"], values["place"]) == (Decimal("12.50"), Place("Almaty"))
    same = jobs.make(spec, (), values, PLAIN, LIMIT)
    for name in ("task", "queue", "rank", "gate", "tenant", "lock_key", "delay", "run_at", "deadline"):
        assert getattr(made, name) == getattr(same, name), name
    assert made.size == len(made.args.encode())


def test_arguments_of_a_stored_job_can_be_given_back(app: App) -> None:
    known, spec = contract(app), app.catalog["hr.move"]
    values = spec.signature.decode(published.make(known, PLAIN_ARGUMENTS, PLAIN, None, LIMIT).args)
    stored = jobs.make(spec, (), values, PLAIN, LIMIT).args
    assert "$datetime" in stored
    again = published.make(known, published.parse(stored, "--args"), PLAIN, None, LIMIT)
    assert orjson.loads(again.args) == orjson.loads(stored)
    assert spec.signature.decode(again.args) == values


def test_options(app: App) -> None:
    known = contract(app, tenant="branch")
    options = Options(run_after="10m", priority=100, tenant="south", deadline="1h")
    made = published.make(known, PLAIN_ARGUMENTS, options, "reports", LIMIT)
    assert (made.delay, made.rank, made.tenant, made.deadline, made.queue) == (600.0, 0, "south", 3600.0, "reports")
    for wrong in (Options(run_after="soon"), Options(deadline="never"), Options(run_after="2030-01-31T08:00")):
        with pytest.raises(EnqueueError, match="nothing was enqueued"):
            published.make(known, PLAIN_ARGUMENTS, wrong, None, LIMIT)


@pytest.mark.parametrize(
    ("changed", "error", "sentence"),
    [
        ({"numbr": 1}, InvalidArguments, "did you mean 'number'?"),
        ({"zzz": 1}, InvalidArguments, "branch, colour, days, key, note. Nothing was enqueued"),
        ({"place": None, "pay": ...}, InvalidArguments, "pay is required"),
        ({"number": "7"}, InvalidArguments, "the lock goes by this value, and write it as integer"),
        ({"number": 7.0}, InvalidArguments, "write it as integer"),
        ({"number": True}, InvalidArguments, "write it as integer"),
        ({"note": "\x00"}, InvalidArguments, "note: the text holds a NUL"),
        ({"place": {"to\x00wn": 1}}, InvalidArguments, "NUL"),
        ({"note": "x" * LIMIT}, PayloadTooLarge, "the limit is 10,000"),
        ({"branch": "x" * 201}, InvalidArguments, "at most 200"),
        ({"branch": 5}, InvalidArguments, "the tenant goes by this value"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(app: App, changed: dict[str, Any], error: type[Exception], sentence: str) -> None:
    known = contract(app, tenant="branch", lock=Lock("number"))
    named = {name: value for name, value in (PLAIN_ARGUMENTS | changed).items() if value is not ...}
    with pytest.raises(error, match=None) as raised:
        published.make(known, named, PLAIN, None, LIMIT)
    assert sentence in str(raised.value)


def test_a_lock_by_a_value_that_only_code_can_read_is_refused(app: App) -> None:
    """Stored as a plain text it would be another key than the one that the code makes, and both jobs would run at once."""
    known = contract(app, lock=Lock("on"))
    with pytest.raises(InvalidArguments, match="--app module:app"):
        published.make(known, PLAIN_ARGUMENTS, PLAIN, None, LIMIT)


def test_a_lock_by_a_default(app: App) -> None:
    known = contract(app, lock=Lock("note"))
    spec = app.catalog["hr.move"]
    made = published.make(known, PLAIN_ARGUMENTS, PLAIN, None, LIMIT)
    assert made.lock_key == jobs.make(spec, (), spec.signature.decode(made.args), PLAIN, LIMIT).lock_key


def test_a_text_for_a_number_is_refused(app: App) -> None:
    known = contract(app)
    assert known.schema is not None
    with pytest.raises(InvalidArguments, match="number='abc' is not integer"):
        published.value_of(known.parameters["number"], known.schema["properties"]["number"], "abc", "number")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("number", "7", 7), ("note", "7", "7"), ("note", '"x"', '"x"'), ("note", "null", "null"),
        ("branch", "null", None), ("branch", "7", "7"), ("place", '{"town": "A"}', {"town": "A"}), ("place", "{", "{"),
        ("on", "2030", "2030"), ("pay", "12.50", 12.5), ("days", '["2030-01-31"]', ["2030-01-31"]), ("key", "1234", "1234"),
    ],
)  # fmt: skip
def test_the_value_of_an_arg(app: App, name: str, text: str, value: Any) -> None:
    known = contract(app)
    assert known.schema is not None
    found = published.value_of(known.parameters[name], known.schema["properties"][name], text, name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "line 1, column 2"), ("", "not well-formed"), ('{"a": 1,}', "not well-formed"), ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": 1, "a": 2}', "'a' stands twice"), ("[" * 100_000, "--args"), ('{"a": 0.12345678901234567890}', "in quotes"),
        ('{"a": 1e999}', "in quotes"), ("{'a': 1}", "not well-formed"), ("1" * 5000, "--args"),
    ],
)  # fmt: skip
def test_json_is_read_strictly(text: str, sentence: str) -> None:
    with pytest.raises(InvalidArguments) as raised:
        published.parse(text, "--args")
    assert sentence in str(raised.value)


def test_large_integers_keep_their_digits(app: App) -> None:
    value = 2**70 + 1
    stored = published.stored_form(published.parse(f'{{"a": {value}}}', "x"))
    assert stored == {"a": {"$int": str(value)}}


@pytest.mark.parametrize("value", [{"$int": 10**30}, {"$date": "\ud800"}, {"$date": "a\x00"}])
def test_a_tag_with_what_cannot_be_stored_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArguments, match="cannot be stored"):
        published.stored_form({"a": value})


def test_a_nest_is_refused() -> None:
    value: Any = 1
    for _ in range(70):
        value = {"a": [value]}
    with pytest.raises(InvalidArguments, match="nested deeper"):
        published.stored_form(value)


def test_names_that_begin_with_a_dollar_arrive_as_they_are(app: App) -> None:
    @app.task(name="any")
    async def any_(value: dict[str, Any]) -> None: ...

    known = published.read("any", published.publish(any_.spec))
    made = published.make(known, {"value": {"$ref": "x", "b": 1}}, PLAIN, None, LIMIT)
    assert any_.spec.signature.decode(made.args) == {"value": {"$ref": "x", "b": 1}}


def test_an_unknown_task_is_told_with_the_nearest() -> None:
    assert "did you mean 'hr.move'?" in str(published.unknown("hr.mvoe", ["hr.move", "x"]))
    assert "there are a, b" in str(published.unknown("zzz", ["b", "a"]))
    nobody = published.unknown("zzz", [])
    assert isinstance(nobody, NotFound)
    assert "start one" in str(nobody)


class Odd:
    """A class whose JSON schema cannot be made."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        raise NotImplementedError


def test_a_type_without_a_schema_does_not_keep_a_worker_from_starting(app: App) -> None:
    @app.task(name="odd")
    async def odd(thing: Odd, n: int = 5, text: str = "x" * 5000, other: Any = Odd) -> None: ...

    found = published.read("odd", published.publish(odd.spec))
    assert found.schema is None
    assert (found.parameters["n"].default, found.parameters["text"].default, found.parameters["other"].default) == (
        "5",
        None,
        None,
    )


def test_a_schema_that_the_store_cannot_hold_is_left_out(app: App) -> None:
    @app.task(name="nul")
    async def nul(text: Annotated[str, Field(description="a \x00 in it")]) -> None: ...

    @app.task(name="half")
    async def half(text: Annotated[str, Field(description="\ud800")]) -> None: ...

    for task_ in (nul, half):
        assert published.read(task_.name, published.publish(task_.spec)).schema is None

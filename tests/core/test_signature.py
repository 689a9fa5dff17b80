"""A task's signature: what may be given, and where a wrong value stands."""

import functools
import typing
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Optional

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import jobwell
from jobwell import Context, SyncContext
from jobwell.core.errors import DeclarationError, InvalidArguments
from jobwell.core.signature import Signature
from tests.core import postponed
from tests.samples import Colour, Price


class Line(BaseModel):
    article: str
    price: Decimal = Field(gt=0)


@dataclass
class Cart:
    lines: list[Line] = field(default_factory=list)


def signature(fn: Any) -> Signature:
    return Signature(fn, "shop.task")


def order(customer: int, items: list[Line], *, express: bool = False, at: datetime | None = None) -> None: ...


def test_positional_and_keyword_arguments_are_the_same_payload() -> None:
    items = [{"article": "a", "price": "1.10"}]
    expected = {"customer": 7, "items": [Line(article="a", price=Decimal("1.10"))]}
    assert signature(order).bind((7, items), {}) == expected
    assert signature(order).bind((7,), {"items": items}) == expected
    assert signature(order).bind((), {"items": items, "customer": 7}) == expected


def test_defaults_are_not_stored_so_that_they_may_change() -> None:
    assert signature(order).bind((1, []), {}) == {"customer": 1, "items": []}
    assert signature(order).bind((1, []), {"express": True}) == {"customer": 1, "items": [], "express": True}


@pytest.mark.parametrize(
    ("args", "kwargs", "said", "path"),
    [
        ((), {}, "customer: is required (and 1 more)", "customer"),
        ((1,), {}, "items: is required", "items"),
        ((1, [], True), {}, "takes 2 positional arguments, 3 given", ""),
        ((1, []), {"customer": 2}, "customer is given twice", "customer"),
        ((1, []), {"expres": True}, "expres: is not a parameter of the task", "expres"),
        (("one", []), {}, "customer: Input should be a valid integer", "customer"),
        ((1, None), {}, "items: Input should be a valid list", "items"),
        ((1, [{"article": "a", "price": 1}] * 3 + [{"article": "a", "price": "much"}]), {}, "items[3].price: ", "items[3].price"),
        ((1, [{"article": "a", "price": -1}]), {}, "items[0].price: Input should be greater than 0", "items[0].price"),
        ((1, [{"price": 1}]), {}, "items[0].article: is required", "items[0].article"),
        ((1, []), {"at": "tomorrow"}, "at: Input should be a valid datetime", "at"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_refused_with_its_path(args: Any, kwargs: Any, said: str, path: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        signature(order).bind(args, kwargs)
    assert refused.value.path == path
    assert refused.value.message.startswith("shop.task: ")
    assert said in refused.value.message


def test_the_refusal_says_that_nothing_was_enqueued() -> None:
    with pytest.raises(InvalidArguments, match="nothing was enqueued"):
        signature(order).bind((None, None), {})


def test_values_are_converted_to_the_declared_types() -> None:
    def task(at: datetime, amount: Decimal, ratio: float, many: list[int], colour: Colour) -> None: ...

    bound = signature(task).bind(("2026-01-28T10:00:00+05:00", "1.10", 1, (1, 2), "r"), {})
    assert [type(value) for value in bound.values()] == [datetime, Decimal, float, list, Colour]


def test_a_generator_for_a_list_is_read_once() -> None:
    def task(ids: list[int]) -> None: ...

    assert signature(task).bind(((n for n in range(3)),), {}) == {"ids": [0, 1, 2]}


def test_without_annotations_everything_that_can_be_stored_is_taken() -> None:
    def task(a, b=1): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    of = signature(task)
    assert of.decode(of.encode(of.bind(({"x": (1,)},), {"b": None})).decode()) == {"a": {"x": (1,)}, "b": None}


def test_a_stored_payload_is_validated_again() -> None:
    with pytest.raises(InvalidArguments, match="customer: is required"):
        signature(order).decode('{"items":[]}')
    with pytest.raises(InvalidArguments, match="extra: is not a parameter"):
        signature(order).decode('{"customer":1,"items":[],"extra":1}')


def test_odd_but_legal_parameter_names_work() -> None:
    def task(_hidden: int, self_: int, class_: int, model_config: int, имя: str) -> None: ...  # noqa: PLC2401

    names = {"_hidden": 1, "self_": 2, "class_": 3, "model_config": 4, "имя": "a"}
    assert signature(task).bind((), names) == names


# --- the context ---------------------------------------------------------------------------------------------------------


async def plain(ctx: Context, x: int) -> None: ...


def sync(ctx: SyncContext, x: int) -> None: ...


async def quoted(ctx: "Context", x: int) -> None: ...


async def qualified(ctx: "jobwell.Context", x: int) -> None: ...


@pytest.mark.parametrize("fn", [plain, sync, quoted, qualified, postponed.plain, postponed.sync, postponed.qualified])
def test_the_context_is_no_part_of_the_payload(fn: Any) -> None:
    of = signature(fn)
    of.check()
    assert of.context
    assert list(of.parameters) == ["x"]
    assert of.bind((3,), {}) == {"x": 3}
    with pytest.raises(InvalidArguments, match="ctx: is not a parameter"):
        of.bind((3,), {"ctx": 1})


def test_without_a_context_nothing_is_taken_away() -> None:
    assert not signature(order).context
    assert not signature(postponed.without).context


def test_the_context_class_of_another_library_is_not_ours() -> None:
    def task(ctx: click.Context) -> None: ...

    assert not signature(task).context
    assert not signature(postponed.foreign).context


def test_a_context_that_does_not_stand_first_is_refused() -> None:
    def task(x: int, ctx: SyncContext) -> None: ...

    with pytest.raises(DeclarationError, match=r"shop\.task"):
        signature(task).check()


# --- declarations --------------------------------------------------------------------------------------------------------


def stars(*args: int) -> None: ...
def double_stars(**kwargs: int) -> None: ...
def positional_only(a: int, /) -> None: ...


@pytest.mark.parametrize(("fn", "name"), [(stars, "args"), (double_stars, "kwargs"), (positional_only, "a")])
def test_parameters_without_a_name_of_their_own_are_refused_at_declaration(fn: Any, name: str) -> None:
    with pytest.raises(DeclarationError, match=f"parameter '{name}' must be a plain named one"):
        signature(fn)


@dataclass
class Unfinished:
    inner: "Missing"  # type: ignore[name-defined]  # noqa: F821


class Engine:
    """No type that can be stored."""


def unresolvable(x: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def inside(x: Unfinished) -> None: ...
def inside_list(x: list[dict[str, Unfinished]]) -> None: ...
def unstorable(x: Engine) -> None: ...
def callback(x: dict[str, Engine]) -> None: ...


@pytest.mark.parametrize("fn", [unresolvable, inside, inside_list, unstorable, callback])
def test_types_that_cannot_be_resolved_or_stored_are_refused_by_check(fn: Any) -> None:
    with pytest.raises(DeclarationError, match=r"^task shop\.task: "):
        signature(fn).check()
    with pytest.raises(DeclarationError, match=r"^task shop\.task: "):
        signature(fn).bind((None,), {})


def test_a_class_that_stands_below_the_task_is_found() -> None:
    postponed_signature = signature(postponed.below)
    postponed_signature.check()
    assert postponed_signature.bind(({"name": "a"},), {})["x"].name == "a"


def test_a_model_made_inside_a_function_is_found() -> None:
    of = signature(postponed.task_of_local_models())
    of.check()
    value = of.bind(({"inner": {"n": 1}},), {})
    assert of.decode(of.encode(value).decode()) == value


def test_a_wrapped_function_keeps_its_signature() -> None:
    @functools.wraps(order)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    assert list(signature(wrapper).parameters) == ["customer", "items", "express", "at"]
    assert signature(wrapper).bind((1, []), {}) == {"customer": 1, "items": []}


def test_the_classes_of_a_signature_are_found_at_any_depth() -> None:
    def task(a: dict[str, list[Cart]], b: Optional["Price"], c: typing.Annotated[Colour | None, "note"]) -> None: ...

    assert set(signature(task).known.values()) == {Cart, Line, Price, Colour}


@given(
    st.dictionaries(
        st.sampled_from(["customer", "items", "express", "at", "x"]), st.none() | st.integers() | st.text() | st.lists(st.text())
    )
)
def test_whatever_is_given_is_bound_or_refused(given_: dict[str, Any]) -> None:
    try:
        bound = signature(order).bind((), given_)
    except InvalidArguments as refused:
        assert refused.path
    else:
        assert isinstance(bound["customer"], int)

"""Steps: recorded parts of a job that are not repeated blindly: what is declared, what is kept, what people are asked."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Literal, Protocol
from uuid import UUID

import orjson

from jobwell.core import error_reading as read
from jobwell.core import text
from jobwell.core.envelope import Known, decode, encode
from jobwell.core.errors import DeclarationError
from jobwell.core.signature import known_of

Unsure = Literal["repeat", "hold", "check"]
LONGEST_NAME = 200
LONGEST_CALL = 500
KEY: Final = "idempotency_key"  # the parameter that asks for the step's key


@dataclass(frozen=True, slots=True)
class Happened:
    """What a `check` says of a step whose outcome is unknown: it has happened.

    Args:
        result: what the step is to return, now and in later attempts.
    """

    result: Any = None


@dataclass(frozen=True, slots=True)
class DidNotHappen:
    """What a `check` says of a step whose outcome is unknown: it has not happened, and will not by itself. It is done now."""


@dataclass(frozen=True, slots=True)
class CannotTell:
    """What a `check` says where it cannot tell: a person must.

    Args:
        why: for that person.
    """

    why: str = ""


Check = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One step as it was declared.

    Attributes:
        unknown: what becomes of it where it is found begun, and not known to be done.
        check: asks the outside system then.
        compensate: the task that undoes it, as `undone_by` made it.
        key: the same in every attempt.
    """

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    unknown: Unsure
    check: Check | None
    compensate: Mapping[str, Any] | None
    key: str

    def call(self, fn: Callable[..., Any]) -> Any:
        """Call a function with the step's arguments, and with its key where it asks for that."""
        if asks_for_key(fn, self.args, self.kwargs):
            return fn(*self.args, **self.kwargs, **{KEY: self.key})
        return fn(*self.args, **self.kwargs)


class Stepping(Protocol):
    """Who runs steps: for an attempt of a worker it writes down what happens."""

    async def run(self, step: Step) -> Any:
        """In an async task."""

    def run_plain(self, step: Step) -> Any:
        """In a plain one."""


def key_of(job: UUID, name: str) -> str:
    """The key of a step, for systems that recognise repeats."""
    return f"{job}:{name}"


def declared(
    job: UUID,
    name: Any,
    fn: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    unknown: Any,
    compensate: Any,
    plain: bool = False,
) -> Step:
    """Check what was given.

    Raises:
        DeclarationError: the sentence says what would be right. Nothing has happened.
    """
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME or not text.storable(name):
        raise DeclarationError(f"step {name!r}: its name must be a text of 1 to {LONGEST_NAME} characters, such as 'mail'")
    who = f"step {name!r}: "
    if not callable(fn):
        raise DeclarationError(
            f"{who}{fn!r} cannot be called; give the function and its arguments: ctx.step('mail', send, address)"
        )
    check = unknown if callable(unknown) else None
    if check is None and unknown not in ("repeat", "hold"):
        raise DeclarationError(f"{who}unknown={unknown!r} must be 'repeat', 'hold' or a function that asks the outside system")
    if plain:
        for one in filter(None, (fn, check)):
            if inspect.iscoroutinefunction(one):
                raise DeclarationError(
                    f"{who}{named(one)} is an async function, and this task is a plain one; make the task async"
                )
    chosen: Unsure = "check" if check is not None else unknown
    return Step(name, fn, args, kwargs, chosen, check, undone_by(compensate, who), key_of(job, name))


def asks_for_key(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function has a parameter `idempotency_key` that these arguments leave open."""
    if KEY in kwargs:
        return False
    try:
        signature = inspect.signature(fn)
        parameter = signature.parameters.get(KEY)
        if parameter is None or parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return False
        return KEY not in signature.bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):  # a builtin tells nothing; wrong arguments are told by the call itself
        return False


# --- what undoes a step ----------------------------------------------------------------------------------------------------


def undone_by(task: Any, who: str) -> Mapping[str, Any] | None:
    """What the store needs to enqueue the task that undoes a step. The gate is text: readers of JSON lose digits.

    Raises:
        DeclarationError: it is no task, or cannot be given the result of a step.
    """
    if task is None:
        return None
    spec = getattr(task, "spec", None)
    if spec is None or not hasattr(spec, "signature"):
        raise DeclarationError(f"{who}compensate={task!r} must be a declared task")
    parameters = spec.signature.parameters
    if len(parameters) != 1:
        raise DeclarationError(
            f"{who}compensate={spec.name}: a task that undoes a step has one parameter besides its context, the step's result;"
            f" this one has {len(parameters)}"
        )
    if spec.tenant or spec.lock:
        raise DeclarationError(
            f"{who}compensate={spec.name}: it takes the tenant of the job, and can name no tenant or lock itself"
        )
    return {
        "task": spec.name, "queue": spec.queue, "rank": 100 - spec.priority, "gate": str(spec.gate), "deadline": spec.deadline,
        "version": spec.version, "parameter": next(iter(parameters)),
    }  # fmt: skip


# --- results -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """What a function says of what it returns.

    Attributes:
        nothing: it returns nothing that counts: `-> None`.
        known: classes that may stand in it.
        validator: holds a stored value against the type; None where the type says nothing.
    """

    nothing: bool = False
    known: Known | None = None
    validator: Any = None

    def encode(self, value: Any, more: Known) -> bytes:
        """The stored form.

        Raises:
            InvalidArguments: it cannot be stored.
        """
        return b"null" if self.nothing else encode(value, {**more, **(self.known or {})}, "result")

    def decode(self, stored: str, more: Known) -> Any:
        """The value again.

        Raises:
            InvalidArguments, ValueError: it cannot be read, or does not fit the type any more.
        """
        value = decode(stored, {**more, **(self.known or {})})
        return value if self.validator is None or self.nothing else self.validator.validate_python(value)


ANYTHING: Final = Shape()


def shape_of(fn: Callable[..., Any]) -> Shape:
    """By the annotation of what it returns; anything where there is none, or none that can be read."""
    while hasattr(fn, "func") and hasattr(fn, "keywords"):  # functools.partial
        fn = fn.func
    fn = getattr(fn, "__func__", fn)
    try:
        return _shape(fn)
    except TypeError:  # no hash
        return ANYTHING


@lru_cache(maxsize=512)
def _shape(fn: Callable[..., Any]) -> Shape:
    import typing

    try:
        hint = typing.get_type_hints(fn, include_extras=True).get("return", Any)
        known = known_of(hint)
    except Exception:  # noqa: BLE001  an annotation is user code, and may name what is not there
        return ANYTHING
    if hint is Any:
        return ANYTHING
    if hint is type(None):
        return Shape(nothing=True)
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

    try:
        return Shape(known=known, validator=TypeAdapter(hint).validator)
    except (PydanticUserError, PydanticUndefinedAnnotation):
        return Shape(known=known)


# --- for people ------------------------------------------------------------------------------------------------------


def named(fn: Any) -> str:
    """A function as people know it."""
    while hasattr(fn, "func") and hasattr(fn, "keywords"):
        fn = fn.func
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return f"{getattr(fn, '__module__', None) or '?'}.{name}"


def called(step: Step) -> str:
    """The call, for people: plain values as they are, of all else the type only, which says nothing secret."""
    given = [_shown(value) for value in step.args] + [f"{name}={_shown(value)}" for name, value in step.kwargs.items()]
    return text.clean(f"{named(step.fn)}({', '.join(given)})", LONGEST_CALL)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float | str | Decimal | date | datetime | UUID):
        shown = read.quietly(lambda: repr(value)[:100] if type(value) in _PLAIN else str(value)[:100])
        return shown or "…"
    return f"<{type(value).__name__}>"


_PLAIN: Final = (bool, int, float, str, type(None))


def question(job: UUID, step: Step, *, attempt: int, began: datetime, call: str, note: str | None, why: str) -> str:
    """What a person is asked of a step whose outcome is unknown, and how to answer."""
    told = f"step {step.name!r} was begun by attempt {attempt} at {began:%Y-%m-%d %H:%M:%S %Z}; whether it happened is not known"
    told += f" ({why})" if why else ""
    told += f". It called {call} with the key {step.key}"
    told += f"; last heard: {note}" if note else ""
    return f"{told}. Find out, and say {_answers(job, step.name)}"


def asked_for_result(job: UUID, step: Step, why: str) -> str:
    """What a person is asked of a step that is done, and whose result cannot be given again."""
    return (
        f"step {step.name!r} is done, and what it returned cannot be given again: {why}. Give it:"
        f" `jobwell steps answer {job} {_quoted(step.name)} --happened --result JSON`"
    )


def _answers(job: UUID, name: str) -> str:
    command = f"jobwell steps answer {job} {_quoted(name)}"
    return f"`{command} --happened [--result JSON]` or `{command} --did-not-happen`, with --why"


def _quoted(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").replace(":", "").replace(".", "").isalnum() else f"'{name}'"


def given_result(value: str | None) -> str:
    """A result that a person gives, in the stored form.

    Raises:
        InvalidArguments: it cannot be stored.
    """
    from jobwell.core.published import parse, stored_form

    return "null" if value is None else orjson.dumps(stored_form(parse(value, "--result"), "result")).decode()


def stored_compensation(step: Step) -> str | None:
    """As JSON."""
    return None if step.compensate is None else orjson.dumps(step.compensate).decode()

"""A task's signature as a contract: which parameters, which types, which classes may stand in a payload."""

import dataclasses
import inspect
import typing
import warnings
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cached_property
from typing import Any, NotRequired, Required

from jobwell.core.envelope import Known, class_name, decode, encode, encode_fields
from jobwell.core.errors import NOT_ENQUEUED, DeclarationError, InvalidArguments

CONTEXTS = ("Context", "SyncContext")
TRIED = 100  # jobs with classes in them whose way back is tried before they are stored


class Signature:
    """The parameters of one function, without its context.

    Types are resolved at the first use and not at declaration: so a module may name classes that stand below it,
    and importing an application does not build a hundred validators. `jobwell worker` and `doctor` check them all.

    Args:
        fn: the function as written.
        name: the task's name, for errors.

    Raises:
        DeclarationError: a parameter is positional-only, `*args` or `**kwargs`.
    """

    def __init__(self, fn: Callable[..., Any], name: str) -> None:
        self.fn = fn
        self.name = name
        parameters = list(inspect.signature(fn).parameters.values())
        self.context = _context(fn, parameters[0].annotation) if parameters else ""  # the name of its class, or nothing
        if self.context:
            parameters = parameters[1:]
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise DeclarationError(
                    f"task {name}: parameter {parameter.name!r} must be a plain named one; a payload is stored by name,"
                    " so *args, **kwargs and positional-only parameters cannot be part of a task"
                )
        self.parameters = {parameter.name: parameter for parameter in parameters}
        self._positions = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        self._to_try = TRIED
        self._required = frozenset(p.name for p in parameters if p.default is p.empty)

    @cached_property
    def hints(self) -> dict[str, Any]:
        """The resolved annotations; Any where there is none."""
        try:
            found = typing.get_type_hints(self.fn, include_extras=True)
        except (NameError, TypeError) as error:
            raise DeclarationError(f"task {self.name}: its annotations cannot be resolved: {error}") from error
        return {name: found.get(name, Any) for name in (*self.parameters, "return")}

    @cached_property
    def known(self) -> Known:
        """The enums, dataclasses and models that the signature names, by the name they have in payloads."""
        found: dict[type, bool] = {}
        try:
            for hint in self.hints.values():
                _collect(hint, found)
        except (NameError, TypeError) as error:
            raise DeclarationError(f"task {self.name}: a type in its signature cannot be resolved: {error}") from error
        return {class_name(cls): cls for cls, named in found.items() if named}

    @cached_property
    def _adapter(self) -> Any:
        from pydantic import ConfigDict, TypeAdapter
        from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
        from typing_extensions import TypedDict  # typing.TypedDict does not do for pydantic below Python 3.12

        fields = {
            name: Required[hint] if name in self._required else NotRequired[hint]
            for name, hint in self.hints.items()
            if name != "return"
        }
        make: Any = TypedDict  # a type checker wants to see the fields; here they are known at run time only
        shape = make("Arguments", fields)
        shape.__pydantic_config__ = ConfigDict(extra="forbid")
        try:
            adapter = TypeAdapter(shape)
            if not adapter.pydantic_complete:  # a class inside names another that is not there: say so now
                adapter.rebuild(raise_errors=True)
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            raise DeclarationError(
                f"task {self.name}: a parameter has a type that cannot be stored; pass an id or plain values instead."
                f" ({str(error).splitlines()[0]})"
            ) from error
        return adapter

    @cached_property
    def _validator(self) -> Any:
        return self._adapter.validator

    def json_schema(self) -> dict[str, Any] | None:
        """The arguments as JSON Schema; None where a type in them has none."""
        adapter = self._adapter
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of defaults that JSON cannot hold: they are only left out
                found: dict[str, Any] = adapter.json_schema()
        except Exception:  # noqa: BLE001  a class of the user's may say how it looks in JSON, and fail in any way at that
            return None
        return found

    def check(self) -> None:
        """Resolve and build everything now.

        Raises:
            DeclarationError: an annotation cannot be resolved or cannot be stored.
        """
        _ = self._validator, self.known

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Name the arguments and validate them.

        Raises:
            InvalidArguments: too many, missing, unknown or of the wrong type; the message names the path.
        """
        if args:
            if len(args) > len(self._positions):
                raise InvalidArguments(f"{self.name}: takes {len(self._positions)} positional arguments, {len(args)} given")
            named = dict(zip(self._positions, args, strict=False))
            for name in named:
                if name in kwargs:
                    raise InvalidArguments(f"{self.name}: {name} is given twice", name)
            kwargs = named | kwargs
        return self.validate(kwargs)

    def validate(self, named: Mapping[str, Any], so: str = NOT_ENQUEUED) -> dict[str, Any]:
        """Validate named arguments; values come back converted to the declared types.

        Args:
            named: the arguments.
            so: what a refusal means, for its sentence.

        Raises:
            InvalidArguments: they do not fit; the message names the path.
        """
        try:
            checked: dict[str, Any] = self._validator.validate_python(named)
        except ValueError as error:
            if not hasattr(error, "errors"):  # not pydantic's: raised by a validator of the user's class
                raise
            raise _invalid(self.name, error, so) from None
        return checked

    def encode(self, named: Mapping[str, Any]) -> bytes:
        """Encode validated arguments.

        Raises:
            InvalidArguments: one cannot be stored, or would not come back as it is.
        """
        encoded = encode_fields(named, self.known)
        if self._to_try and b'"$data"' in encoded:
            for name, value in named.items():
                self._must_come_back(name, encode(value, self.known, name))
            self._to_try -= 1
        return encoded

    def _must_come_back(self, name: str, stored: bytes) -> None:
        # The validators of a class run when it is made again: some refuse, or change, what they made the first time. That is a
        # property of the class, so the first jobs show it; to try every job would take four times as long as to encode it.
        try:
            again = encode(decode(stored, self.known), self.known)
        except InvalidArguments:
            again = b""
        if again != stored:
            raise InvalidArguments(
                f"{self.name}: {name}: would not come back as it is, because a class in it changes or refuses what it made"
                " itself; let its validators accept their own result, or pass plain values; nothing was enqueued",
                name,
            )

    def read(self, stored: str) -> dict[str, Any]:
        """Decode a stored payload without validating it."""
        found = decode(stored, self.known)
        if not isinstance(found, dict):
            raise InvalidArguments(f"{self.name}: the payload is no object with named arguments")
        return found

    def decode(self, stored: str, so: str = "") -> dict[str, Any]:
        """Decode and validate a stored payload, as the worker does. `so` is what a refusal means, for its sentence."""
        return self.validate(decode(stored, self.known), so)

    def encode_result(self, value: Any) -> bytes:
        """Encode what the function returned."""
        return encode(value, self.known, "result")

    def decode_result(self, stored: str) -> Any:
        """Decode a stored result, and hold it against the declared return type; without one anything fits.

        Raises:
            InvalidArguments: it cannot be decoded: a class in it is gone, or is another one now.
            ValueError: it does not fit the type.
        """
        value = decode(stored, self.known)
        return value if self._returned is None else self._returned.validate_python(value)

    @cached_property
    def _returned(self) -> Any:
        """What checks a result; None where the type says nothing, or is nothing that pydantic can check."""
        hint = self.hints["return"]
        if hint is Any:
            return None
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

        try:
            return TypeAdapter(hint).validator
        except (PydanticUserError, PydanticUndefinedAnnotation):  # any class may be returned by a function called directly
            return None

    def value_of(self, named: Mapping[str, Any], parameter: str) -> Any:
        """The value of one parameter, its default included."""
        return named[parameter] if parameter in named else self.parameters[parameter].default


def classes_of(hint: Any) -> dict[str, type]:
    """The enums, dataclasses and models that a type names, itself included, by the names that they have in what is stored."""
    found: dict[type, bool] = {}
    try:
        _collect(hint, found)
    except (NameError, TypeError) as error:
        raise DeclarationError(f"{hint!r}: a type in it cannot be resolved: {error}") from error
    return {class_name(cls): cls for cls, named in found.items() if named}


def _context(fn: Callable[..., Any], annotation: Any) -> str:
    if isinstance(annotation, str):  # from __future__ import annotations
        first, *rest = annotation.split(".")
        found = getattr(inspect.unwrap(fn), "__globals__", {}).get(first)
        for name in rest:
            found = getattr(found, name, None)
        if found is None:  # imported for the type checker only
            last = annotation.rsplit(".", 1)[-1]
            return last if last in CONTEXTS else ""
        annotation = found
    name = getattr(annotation, "__name__", "")
    return name if name in CONTEXTS and annotation.__module__.startswith("jobwell.") else ""


def known_of(hint: Any) -> Known:
    """The classes that an annotation names and that may stand in a payload, by the name that they have there.

    Raises:
        NameError, TypeError: a class in it names what cannot be resolved.
    """
    found: dict[type, bool] = {}
    _collect(hint, found)
    return {class_name(cls): cls for cls, named in found.items() if named}


def _collect(hint: Any, found: dict[type, bool]) -> None:
    """Note every class on the way, and whether it may stand in a payload by its name."""
    from typing_extensions import is_typeddict  # typing's own does not know the other one's classes

    if isinstance(hint, Enum):  # of a Literal
        hint = type(hint)
    behind = (typing.get_origin(hint), getattr(hint, "__supertype__", None), getattr(hint, "__value__", None))
    for part in (*behind, *typing.get_args(hint)):
        if part is not None:
            _collect(part, found)
    if not isinstance(hint, type) or hint in found:
        return
    of_model = getattr(hint, "model_fields", None)
    found[hint] = of_model is not None or issubclass(hint, Enum) or dataclasses.is_dataclass(hint)
    if of_model is not None:
        for field in of_model.values():
            _collect(field.annotation, found)
    elif dataclasses.is_dataclass(hint) or is_typeddict(hint):
        for name, field_hint in typing.get_type_hints(hint).items():
            if isinstance(field_hint, dataclasses.InitVar) and not hasattr(hint, name):
                raise TypeError(f"{class_name(hint)}.{name} is an InitVar, which is not kept, so the class cannot be made again")
            _collect(field_hint, found)


def _invalid(task: str, error: Any, so: str) -> InvalidArguments:
    first = error.errors(include_url=False)[0]
    path = ""
    for part in first["loc"]:
        path += f"[{part}]" if isinstance(part, int) else (f".{part}" if path else str(part))
    said = {"missing": "is required", "extra_forbidden": "is not a parameter of the task"}.get(first["type"], first["msg"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return InvalidArguments(f"{task}: {path}: {said}{more}{'; ' if so else ''}{so}", path)

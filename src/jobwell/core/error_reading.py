"""Reads what an error carries. An error is an object of strangers: it may raise at any look, and lie about every type."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")
LONGEST = 200  # characters of a header


def quietly(look: Callable[[], T]) -> T | None:
    """What a look finds; None where the object does not let itself be looked at."""
    try:
        return look()
    except BaseException:  # noqa: BLE001  whatever an error raises while it is read, it is the first error that is judged
        return None


def get(thing: object, *names: str) -> Any:
    """An attribute of an attribute; None where there is none."""
    for name in names:
        if thing is None:
            return None
        thing = quietly(partial(getattr, thing, name, None))
    return thing


def whole(value: Any) -> int | None:
    """A plain whole number, or None."""
    if type(value) is bool or not issubclass(type(value), int):
        return None
    plain: int = int.__add__(value, 0)  # of a subclass too, without asking it
    return plain


def words(value: object) -> str | None:
    """A plain text, or None."""
    return str.__str__(value) if issubclass(type(value), str) else None


def status_of(error: object) -> int | None:
    """The HTTP status of an error of a library that is known to carry one."""
    for place in (("response", "status_code"), ("response", "status"), ("status",), ("code",)):
        found = whole(get(error, *place))
        if found is not None and 100 <= found < 600:
            return found
    return None


def status_of_response(error: object) -> int | None:
    """The HTTP status of any error that holds a response; an attribute named `status` alone may mean anything."""
    for name in ("status_code", "status"):
        found = whole(get(error, "response", name))
        if found is not None and 400 <= found < 600:
            return found
    return None


def retry_after(error: object) -> str | None:
    """The text of `Retry-After`, as it was said."""
    for place in (("response", "headers"), ("headers",)):
        headers = get(error, *place)
        for name in ("Retry-After", "retry-after"):
            if headers is not None:
                found = _header(quietly(partial(_entry, headers, name)))
                if found:
                    return found
    return None


def _entry(headers: Any, name: str) -> object:
    return headers.get(name)


def _header(value: object) -> str | None:
    text = words(value)
    return text.strip() if text is not None and 0 < len(text.strip()) <= LONGEST else None


def aws_of(error: object) -> tuple[str | None, int | None, str | None]:
    """Code, HTTP status and `Retry-After` of a ClientError, whose response is a dict."""
    response = get(error, "response")
    code = words(quietly(lambda: response["Error"]["Code"]))
    status = whole(quietly(lambda: response["ResponseMetadata"]["HTTPStatusCode"]))
    asked = _header(quietly(lambda: response["ResponseMetadata"]["HTTPHeaders"]["retry-after"]))
    return code, status, asked


def grpc_of(error: Any) -> tuple[str | None, float | None]:
    """The name of the code, and the seconds that the server asked to wait (`grpc-retry-pushback-ms`)."""
    code = words(get(quietly(lambda: error.code() if callable(error.code) else None), "name"))
    return code, quietly(lambda: _pushback(error))


def _pushback(error: Any) -> float | None:
    for key, value in islice(error.trailing_metadata() or (), 100):
        if key == "grpc-retry-pushback-ms":
            wait = int(value) / 1000
            return wait if 0 <= wait < 1e9 else None
    return None


def reply_of(error: object) -> int | None:
    """The SMTP reply: of smtplib `smtp_code`, of aiosmtplib `code`."""
    found = (whole(get(error, name)) for name in ("smtp_code", "code"))
    return next((code for code in found if code is not None and 100 <= code < 600), None)


def replies_of(error: object) -> list[int]:
    """The SMTP replies to each refused recipient: of smtplib a dict, of aiosmtplib a list of errors."""
    found = get(error, "recipients")
    if issubclass(type(found), dict):
        codes = quietly(lambda: [whole(reply[0]) for reply in islice(found.values(), 1000)])
    else:
        codes = quietly(lambda: [whole(get(refused, "code")) for refused in islice(found, 1000)])
    return [code for code in codes or () if code is not None]


def leaves_of(group: BaseException, most: int = 1000) -> list[BaseException]:
    """The errors in a group and the groups in it; of an endless number the first ones."""
    found: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting and len(found) < most:
        error = waiting.pop()
        if issubclass(type(error), BaseExceptionGroup):
            # The attribute of the base itself: a subclass may have one of the same name that says something else.
            inner: Any = BaseExceptionGroup.exceptions.__get__(error)
            waiting.extend(reversed(inner))
        else:
            found.append(error)
    return found


def inner_of(error: object) -> BaseException | None:
    """The error that this one only wraps: of a driver, of a socket."""
    found = (get(error, name) for name in ("orig", "reason", "__cause__"))
    return next((inner for inner in found if issubclass(type(inner), BaseException)), None)


def chain_of(error: object) -> Iterator[BaseException]:
    """Everything that an error was made from or raised in, nearest first."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting and len(seen) < 20:
        at = waiting.pop(0)
        if id(at) in seen:
            continue
        seen.add(id(at))
        found = [get(at, name) for name in ("orig", "reason", "__cause__", "os_error", "__context__")]
        found += quietly(partial(_given, at)) or []
        for inner in found:
            if issubclass(type(inner), BaseException) and id(inner) not in seen:
                yield inner
                waiting.append(inner)


def _given(error: Any) -> list[object]:
    """The first things that an error was made with."""
    return list(BaseException.__dict__["args"].__get__(error)[:2])


def ancestors(error: BaseException) -> list[type]:
    """The classes of an error, its own first, whatever its metaclass says."""
    return list(type.__dict__["__mro__"].__get__(type(error)))


def name_of(cls: type) -> str:
    """Where a class says that it comes from."""
    module, name = quietly(lambda: words(cls.__module__)), quietly(lambda: words(type.__dict__["__qualname__"].__get__(cls)))
    return f"{module}.{name}"


def named(name: str, cls: type) -> bool:
    """Whether a dotted name means a class: its own, or the public one under which its package shows it. Nothing is imported."""
    if name_of(cls) == name:
        return True
    module, _, last = name.rpartition(".")
    there = sys.modules.get(module)
    return there is not None and quietly(lambda: vars(there).get(last)) is cls

"""A statement as another driver wants it, with every parameter as text that the server casts.

What a caller has taught the connection lent to us (codecs for json, uuid, timestamps, arrays) so has no part in what is stored.
A statement that may run on such a connection therefore casts each parameter that is not text, and answers in text where the
answer is read.
"""

import re
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any

_MARK = re.compile(r"%\((\w+)\)s|%%")


@cache
def numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    """The text with `$1`, `$2`, and the names of the parameters in that order."""
    names: list[str] = []

    def number(name: str) -> str:
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}::text"

    return _rewritten(statement, number), tuple(names)


@cache
def named(statement: str) -> str:
    """The text with `:name`, as SQLAlchemy's `text()` reads it."""
    return _rewritten(statement, lambda name: f"cast(:{name} as text)")


def _rewritten(statement: str, parameter: Callable[[str], str]) -> str:
    return _MARK.sub(lambda found: "%" if found[1] is None else parameter(found[1]), statement)


def as_text(value: Any) -> str | None:
    """A parameter as the server reads it after a cast, whatever the session's DateStyle."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list):
        return "{" + ",".join(map(_element, value)) + "}"
    return str(value)


def _element(value: Any) -> str:
    text = as_text(value)
    if text is None:
        return "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

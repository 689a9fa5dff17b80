"""The statements of `case.sql`, by name."""

import re
from functools import cache
from importlib.resources import files

from jobwell.store.statements import within

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")


class Case:
    """All statements, for the schema of the store and that of the company beside it.

    Args:
        schema: of the store, a checked identifier (settings do that).
    """

    def __init__(self, schema: str) -> None:
        self.company = company(schema)
        self._schema = schema

    def __getitem__(self, name: str) -> str:
        return within(re.sub(r"\bhr\.", f"{self.company}.", _read()[name]), self._schema)


def company(schema: str) -> str:
    """The company's schema that belongs to a store's."""
    return f"{schema}_hr"


@cache
def _read() -> dict[str, str]:
    pieces = _NAME.split((files("jobwell.demo") / "case.sql").read_text(encoding="utf-8"))
    return {name: _PARAMETER.sub(r"%(\1)s", text.strip()) for name, text in zip(pieces[1::2], pieces[2::2], strict=True)}

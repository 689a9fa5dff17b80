"""The statements of `case.sql`, by name."""

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_SCHEMA = re.compile(r"\b(?:jobwell|hr)\b")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")


class Case:
    """All statements, for the schema of the store and that of the company beside it.

    Args:
        schema: of the store, a checked identifier (settings do that).
    """

    def __init__(self, schema: str) -> None:
        self.company = f"{schema}_hr"
        self._names = {"jobwell": schema, "hr": self.company}

    def __getitem__(self, name: str) -> str:
        return _SCHEMA.sub(lambda found: self._names[found[0]], _read()[name])


@cache
def _read() -> dict[str, str]:
    pieces = _NAME.split((files("jobwell.demo") / "case.sql").read_text(encoding="utf-8"))
    return {name: _PARAMETER.sub(r"%(\1)s", text.strip()) for name, text in zip(pieces[1::2], pieces[2::2], strict=True)}

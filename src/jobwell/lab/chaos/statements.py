"""The statements of `chaos.sql`, by name."""

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_COMMENT = re.compile(r"--[^\n]*")


@cache
def statements() -> dict[str, str]:
    """All of them; the schema of the store is the default one, since the server is the run's own."""
    pieces = _NAME.split((files("jobwell.lab.chaos") / "chaos.sql").read_text(encoding="utf-8"))
    texts = (_COMMENT.sub("", text).replace("%", "%%") for text in pieces[2::2])
    found = (_PARAMETER.sub(r"%(\1)s", text.strip()) for text in texts)
    return dict(zip(pieces[1::2], found, strict=True))

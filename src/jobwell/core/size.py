"""Sizes as people write them: 512MB, 2GB, 65536."""

import re
from dataclasses import dataclass

from jobwell.core.errors import DeclarationError

Size = int | str
UNITS = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3}
_PART = re.compile(r"\s*(\d{1,3}(?:\.\d+)?)\s*%\s*")
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?B)?\s*", re.IGNORECASE)


def size(value: Size, name: str) -> int:
    """Bytes.

    Args:
        value: a whole number of bytes, or text with a unit: KB, MB or GB (of 1024).
        name: for the error.

    Raises:
        DeclarationError: it cannot be read, or is not above zero.
    """
    found = _FORM.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        value = int(float(found[1]) * UNITS[(found[2] or "B").upper()])
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise DeclarationError(f"{name}={value!r} must be a size above zero, such as '512MB' or a number of bytes")
    return value


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A part of the memory that there is, or a number of bytes.

    Attributes:
        value: from 0 to 1, or bytes.
        part: which of them.
    """

    value: float
    part: bool

    def __str__(self) -> str:
        return f"{self.value * 100:g}%" if self.part else text(int(self.value))


def memory_limit(value: Size, name: str) -> MemoryLimit:
    """A limit as people write it: "80%", "6GB".

    Raises:
        DeclarationError: it cannot be read.
    """
    found = _PART.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return MemoryLimit(size(value, name), part=False)
    part = float(found[1]) / 100
    if not 0 < part <= 1:
        raise DeclarationError(f"{name}={value!r} must be above 0 % and at most 100 %")
    return MemoryLimit(part, part=True)


def text(size: int) -> str:
    """Bytes for people, exact where it is a whole number of a unit."""
    for unit in ("GB", "MB", "KB"):
        if size >= UNITS[unit]:
            return f"{size / UNITS[unit]:.1f}".removesuffix(".0") + unit
    return f"{size}B"

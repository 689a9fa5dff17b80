"""Sizes as people write them: 512MB, 2GB, 65536."""

import re

from jobwell.core.errors import DeclarationError

Size = int | str
UNITS = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3}
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

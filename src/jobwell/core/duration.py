"""Durations as people write them: "30s", "2h", "1h30m", 90 (seconds), timedelta."""

import re
from datetime import timedelta

from jobwell.core.errors import DeclarationError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_WHOLE = re.compile(rf"\s*(?:{_PART.pattern}\s*)+")

Duration = str | int | float | timedelta


def seconds(value: Duration, name: str = "duration") -> float:
    """Read a duration.

    Args:
        value: "500ms", "30s", "1h30m", "2d", "1w"; a number is seconds; or a timedelta.
        name: what it is for, named in the error.

    Returns:
        Seconds, never negative.

    Raises:
        DeclarationError: it cannot be read, or it is negative or not finite.
    """
    if isinstance(value, timedelta):
        found = value.total_seconds()
    elif isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            raise DeclarationError(
                f"{name}={value!r} is not a duration; write it like '30s', '2h' or '1h30m' (units: ms, s, m, h, d, w)"
            )
        found = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise DeclarationError(f"{name}={value!r} is not a duration; write it like '30s', or give seconds or a timedelta")
    else:
        found = float(value)
    if not 0 <= found <= 3.2e9:  # a century: beyond it PostgreSQL and people mean something else
        raise DeclarationError(f"{name}={value!r} must be between 0 and 100 years")
    return found


def text(value: float) -> str:
    """Write seconds for people: 0.25 → "250ms", 90 → "1m30s", 86400 → "1d"."""
    if value < 0.9995:
        return f"{round(value * 1000)}ms"
    if value < 10 and round(value, 1) != round(value):
        return f"{value:.1f}s"
    whole, parts = round(value), []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"

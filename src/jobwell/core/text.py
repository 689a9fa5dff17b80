"""Texts that people and other programs gave us, made safe to store: the end-of-job write must not fail because of content."""

import re

# PostgreSQL refuses NUL; lone surrogates cannot be encoded; other control characters would write into terminals.
_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def clean(value: str, limit: int) -> str:
    """Replace what cannot be stored or would steer a terminal, and cut in the middle to `limit` characters."""
    value = _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", value)
    if len(value) <= limit:
        return value
    mark = f"\n… {len(value) - limit} characters cut …\n"
    head = max(0, (limit - len(mark)) * 2 // 3)
    tail = max(0, limit - len(mark) - head)
    return value[:head] + mark + (value[-tail:] if tail else "")


def storable(value: str) -> bool:
    """Whether PostgreSQL can hold this text unchanged."""
    if "\x00" in value:
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

"""Texts that people and other programs gave us, made safe to store: the end-of-job write must not fail because of content."""

import re

from jobwell.core.errors import InvalidArguments

# PostgreSQL refuses NUL; lone surrogates cannot be encoded; other control characters (C1 too) would steer terminals.
_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def clean(value: str, limit: int) -> str:
    """Replace what cannot be stored or would steer a terminal, and cut in the middle to `limit` characters."""
    value = _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", value)
    if len(value) <= limit:
        return value
    mark = f"\n… {len(value) - limit} characters cut …\n"
    room = limit - len(mark)
    if room < 0:
        return value[:limit]
    head = room * 2 // 3
    return value[:head] + mark + value[len(value) - (room - head) :]


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


def check_storable(**texts: str | None) -> None:
    """Refuse texts of people that the store cannot hold.

    Raises:
        InvalidArguments: with the name of the text; nothing was sent.
    """
    for name, value in texts.items():
        if value is not None and not storable(value):
            held = "a NUL character" if "\x00" in value else "something that is no Unicode character"
            raise InvalidArguments(f"{name} holds {held}, which cannot be stored; nothing was done", name)


# What a terminal obeys: control characters except tab and line feed, and the marks that turn the direction of writing round.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def flat(value: str) -> str:
    """As `visible`, on one line: what stands in it cannot look like a line of its own."""
    return visible(value).replace("\n", "\N{REPLACEMENT CHARACTER}").replace("\t", "\N{REPLACEMENT CHARACTER}")


# JSON escapes what stands below a space by itself; the rest of what a terminal obeys stands in its texts only.
_RAW = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def escaped(encoded: str) -> str:
    """JSON in which also the rest of what a terminal obeys is escaped. It means the same."""
    return _RAW.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded)


def visible(value: str) -> str:
    """The text for a terminal: what would steer it, or hide what stands there, is replaced. Line feeds and tabs stay."""
    return _OBEYED.sub("\N{REPLACEMENT CHARACTER}", value.replace("\r\n", "\n"))

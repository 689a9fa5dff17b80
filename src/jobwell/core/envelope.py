"""Arguments and results as JSON, with tags for the types that JSON does not have. Never pickle.

| Python | stored |
|---|---|
| str, bool, None, int up to 2^53, finite float, list, dict with text keys | as they are |
| larger int, nan and infinities | {"$int": "…"}, {"$float": "nan"} |
| datetime, date, time | {"$datetime": "…"} (+ "zone", "fold"), {"$date": "…"}, {"$time": "…"} |
| timedelta | {"$timedelta": [days, seconds, microseconds]} |
| Decimal, UUID, bytes | {"$decimal"}, {"$uuid"}, {"$bytes": base64} |
| tuple, set, frozenset | {"$tuple": […]}, {"$set"}, {"$frozenset"} |
| dict with other keys, or with keys that begin with "$" | {"$dict": [[key, value], …]} |
| Enum, Flag of the signature | {"$enum": [name, member]}, {"$flag": [name, value]} |
| dataclass, pydantic model of the signature | {"$data": [name, fields]} |

Classes are looked up among those that the task's own signature names; nothing is ever imported from stored data.
"""

import base64
import dataclasses
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson

from jobwell.core.errors import InvalidArguments
from jobwell.core.text import storable

Known = Mapping[str, type]
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
EXACT = 2**53  # beyond it JavaScript and jsonb readers lose digits
DEEPEST = 64


def class_name(cls: type) -> str:
    """How a class of a signature is named in a payload."""
    return f"{cls.__module__}.{cls.__qualname__}"


def encode(value: Any, known: Known, path: str = "") -> bytes:
    """Encode to JSON.

    Raises:
        InvalidArguments: something cannot be stored; the message names the path.
    """
    return orjson.dumps(_plain(value, known, path, 0))


def encode_fields(fields: Mapping[str, Any], known: Known) -> bytes:
    """Encode named arguments; paths in errors begin with the argument's name."""
    plain = {}
    for name, value in fields.items():
        kind = type(value)
        if (kind is int and -EXACT <= value <= EXACT) or (kind is str and value.isascii() and "\x00" not in value):
            plain[name] = value
        else:
            plain[name] = _plain(value, known, name, 0)
    return orjson.dumps(plain)


def versioned(encoded: bytes, version: int) -> bytes:
    """Encoded arguments with the version of their form, which 1 goes without."""
    if version == 1:
        return encoded
    return b'{"$version":%d%s%s' % (version, b"" if encoded == b"{}" else b",", encoded[1:])


def version_of(stored: str) -> tuple[int, str]:
    """The version of stored arguments, and the arguments without it.

    Raises:
        InvalidArguments: it is no version.
    """
    if '"$version"' not in stored:
        return 1, stored
    try:
        fields = orjson.loads(stored)
        if not isinstance(fields, dict) or "$version" not in fields:  # a text that looks like it
            return 1, stored
        version = fields.pop("$version")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ValueError(f"version {version!r}")
        return version, orjson.dumps(fields).decode()
    except _UNREADABLE as error:
        raise InvalidArguments(f"the payload cannot be read: {error}") from error


def decode(stored: str | bytes, known: Known) -> Any:
    """Decode what `encode` made.

    Raises:
        InvalidArguments: it is no JSON, it does not fit, or a tag or a class in it is not known to the task.
    """
    try:
        value = orjson.loads(stored)
        tagged = '"$' in stored if isinstance(stored, str) else b'"$' in stored
        return _rich(value, known) if tagged else value
    except _UNREADABLE as error:
        raise InvalidArguments(f"the payload cannot be read: {type(error).__name__}: {error}") from error


def _refuse(path: str, what: str) -> InvalidArguments:
    return InvalidArguments(f"{path or 'the value'}: {what}", path)


def _plain(value: Any, known: Known, path: str, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        if not storable(value):
            raise _refuse(path, "the text holds a NUL character or a lone surrogate, which cannot be stored; clean it first")
        return value
    if kind is bool or value is None:
        return value
    if kind is int:
        return value if -EXACT <= value <= EXACT else _large(value, path)
    if kind is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if depth >= DEEPEST:
        raise _refuse(path, f"nested deeper than {DEEPEST} levels (or holding itself); pass a flatter value")
    encoder = _ENCODERS.get(kind)
    if encoder:
        return encoder(value, known, path, depth + 1)
    return _instance(value, known, path, depth)


def _instance(value: Any, known: Known, path: str, depth: int) -> dict[str, Any]:
    kind = type(value)
    if isinstance(value, Enum):
        tagged: Any = ("$enum", value.name)
        if isinstance(value, Flag):  # members together have no name of their own
            tagged = ("$flag", _plain(value.value, known, path, depth))
    elif dataclasses.is_dataclass(kind):
        tagged = ("$data", {f.name: getattr(value, f.name) for f in dataclasses.fields(kind)})
    elif hasattr(kind, "model_fields"):
        tagged = ("$data", {name: getattr(value, name) for name in kind.model_fields} | (value.model_extra or {}))
    else:
        raise _refuse(path, f"a {class_name(kind)} cannot be stored; pass an id, or plain values")
    if known.get(class_name(kind)) is not kind:
        raise _refuse(path, f"a {class_name(kind)} can be stored only where the task's signature names that class")
    tag, held = tagged
    return {tag: [class_name(kind), _members(held, known, path, depth) if tag == "$data" else held]}


def _large(value: int, path: str) -> dict[str, str]:
    try:
        return {"$int": str(value)}
    except ValueError as error:  # the interpreter's bound for turning an integer into text
        raise _refuse(path, f"the integer is too long ({error})") from None


def _members(held: Mapping[str, Any], known: Known, path: str, depth: int) -> dict[str, Any]:
    return {name: _plain(item, known, f"{path}.{name}", depth + 1) for name, item in held.items()}


def _sequence(value: Any, known: Known, path: str, depth: int) -> list[Any]:
    return [_plain(item, known, f"{path}[{at}]", depth) for at, item in enumerate(value)]


def _mapping(value: dict[Any, Any], known: Known, path: str, depth: int) -> dict[str, Any]:
    if all(type(key) is str and not key.startswith("$") for key in value):
        plain = {}
        for key, item in value.items():
            if not storable(key):
                raise _refuse(f"{path}.{key!r}", "the key holds a NUL character or a lone surrogate")
            plain[key] = _plain(item, known, f"{path}.{key}", depth)
        return plain
    return {
        "$dict": [
            [_plain(key, known, f"{path} key {key!r}", depth), _plain(item, known, f"{path}[{key!r}]", depth)]
            for key, item in value.items()
        ]
    }


def _datetime(value: datetime, _known: Known, path: str, _depth: int) -> dict[str, Any]:
    tag: dict[str, Any] = {"$datetime": value.isoformat()}
    if isinstance(value.tzinfo, ZoneInfo):
        if value.tzinfo.key is None:
            raise _refuse(path, "its time zone has no name; use ZoneInfo('Area/City')")
        tag["zone"] = value.tzinfo.key
    if value.fold:
        tag["fold"] = 1
    return tag


def _time(value: time, _known: Known, path: str, _depth: int) -> dict[str, Any]:
    if isinstance(value.tzinfo, ZoneInfo):
        raise _refuse(path, "a time of day with a named zone is ambiguous; pass a datetime, or the zone's name beside it")
    return {"$time": value.isoformat()} | ({"fold": 1} if value.fold else {})


def _timedelta(value: timedelta, _known: Known, _path: str, _depth: int) -> dict[str, Any]:
    return {"$timedelta": [value.days, value.seconds, value.microseconds]}


def _ordered(value: Any, known: Known, path: str, depth: int) -> list[Any]:
    return sorted(_sequence(value, known, path, depth), key=orjson.dumps)  # equal sets have equal bytes: lock keys need it


_ENCODERS: dict[type, Callable[[Any, Known, str, int], Any]] = {
    list: _sequence,
    dict: _mapping,
    tuple: lambda v, known, path, depth: {"$tuple": _sequence(v, known, path, depth)},
    set: lambda v, known, path, depth: {"$set": _ordered(v, known, path, depth)},
    frozenset: lambda v, known, path, depth: {"$frozenset": _ordered(v, known, path, depth)},
    datetime: _datetime,
    date: lambda v, *_: {"$date": v.isoformat()},
    time: _time,
    timedelta: _timedelta,
    Decimal: lambda v, *_: {"$decimal": str(v)},
    UUID: lambda v, *_: {"$uuid": str(v)},
    bytes: lambda v, *_: {"$bytes": base64.b64encode(v).decode()},
}


def _rich(value: Any, known: Known) -> Any:
    if isinstance(value, list):
        return [_rich(item, known) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith("$"):
        return {key: _rich(item, known) for key, item in value.items()}
    decoder = _DECODERS.get(tag)
    if decoder is None:
        raise InvalidArguments(f"the payload has an unknown tag {tag!r}; a newer release may have written it")
    return decoder(value, known)


def _read_datetime(tagged: dict[str, Any], _known: Known) -> datetime:
    found = datetime.fromisoformat(tagged["$datetime"])
    if "zone" in tagged:
        found = found.replace(tzinfo=ZoneInfo(tagged["zone"]))
    return found.replace(fold=tagged.get("fold", 0))


def _lookup(name: str, known: Known) -> type:
    if name not in known:
        raise InvalidArguments(f"the payload holds a {name}, which the task's signature does not name (any more)")
    return known[name]


def _read_enum(tagged: dict[str, Any], known: Known) -> Any:
    name, member = tagged["$enum"]
    cls = _lookup(name, known)
    if not issubclass(cls, Enum) or member not in cls.__members__:
        raise InvalidArguments(f"{name} has no member {member!r} (any more)")
    return cls[member]


def _read_flag(tagged: dict[str, Any], known: Known) -> Any:
    name, value = tagged["$flag"]
    cls = _lookup(name, known)
    if not issubclass(cls, Flag):
        raise InvalidArguments(f"{name} is no Flag (any more)")
    return cls(_rich(value, known))


def _read_data(tagged: dict[str, Any], known: Known) -> Any:
    name, fields = tagged["$data"]
    cls = _lookup(name, known)
    held = {key: _rich(item, known) for key, item in fields.items()}
    try:
        return _model(cls, held) if hasattr(cls, "model_validate") else _dataclass(cls, held)
    except (TypeError, ValueError) as error:
        raise InvalidArguments(f"the payload's {name} does not fit the class (any more): {error}") from error


def _model(cls: Any, held: dict[str, Any]) -> Any:
    if cls.__pydantic_root_model__:
        return cls.model_validate(held["root"])
    return cls.model_validate(held, by_name=True, by_alias=False)


def _dataclass(cls: Any, held: dict[str, Any]) -> Any:
    init = {f.name: f.init for f in dataclasses.fields(cls)}
    unknown = held.keys() - init.keys()
    if unknown:
        raise TypeError(f"it has no field {min(unknown)!r}")
    made = cls(**{name: item for name, item in held.items() if init[name]})
    for name, item in held.items():  # those with init=False, and those that __post_init__ would have changed a second time
        object.__setattr__(made, name, item)
    return made


_DECODERS: dict[str, Callable[[dict[str, Any], Known], Any]] = {
    "$int": lambda t, _: int(t["$int"]),
    "$float": lambda t, _: float(t["$float"]),
    "$datetime": _read_datetime,
    "$date": lambda t, _: date.fromisoformat(t["$date"]),
    "$time": lambda t, _: time.fromisoformat(t["$time"]).replace(fold=t.get("fold", 0)),
    "$timedelta": lambda t, _: timedelta(*t["$timedelta"]),
    "$decimal": lambda t, _: Decimal(t["$decimal"]),
    "$uuid": lambda t, _: UUID(t["$uuid"]),
    "$bytes": lambda t, _: base64.b64decode(t["$bytes"]),
    "$tuple": lambda t, known: tuple(_rich(item, known) for item in t["$tuple"]),
    "$set": lambda t, known: {_rich(item, known) for item in t["$set"]},
    "$frozenset": lambda t, known: frozenset(_rich(item, known) for item in t["$frozenset"]),
    "$dict": lambda t, known: {_rich(key, known): _rich(item, known) for key, item in t["$dict"]},
    "$enum": _read_enum,
    "$flag": _read_flag,
    "$data": _read_data,
}
TAGS = frozenset(_DECODERS)

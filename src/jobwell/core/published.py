"""Tasks as their workers publish them: enough to enqueue a job from a URL alone, without anybody's code.

Known here: the names of the parameters, which are required, and whether a value is one of JSON's own types. What lies deeper
(the fields of a model, the range of a number) only the task's own signature can judge.
"""

import difflib
import json
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite
from types import NoneType, UnionType
from typing import Any

import orjson

from jobwell.core.dedup import Dedup
from jobwell.core.duration import seconds
from jobwell.core.envelope import DEEPEST, TAGS, encode, encode_fields, versioned
from jobwell.core.errors import NOT_ENQUEUED, DeclarationError, EnqueueError, InvalidArguments, NotFound
from jobwell.core.ids import new_id
from jobwell.core.job import NewJob, Options, check_size, given_key, keep_one, key_of, moment, tenant_of
from jobwell.core.ranks import rank_of
from jobwell.core.signature import Signature
from jobwell.core.task import TaskSpec

FORMAT = 1
LARGEST_SCHEMA = 64 * 1024  # bytes: what a task with hundreds of fields has; a larger one is left out
LARGEST_DEFAULT = 2048
JSON_ONLY = frozenset({"integer", "number", "boolean", "null", "array", "object"})  # no text is one of these
_JSON_TYPES: dict[Any, str] = {str: "string", int: "integer", bool: "boolean", NoneType: "null"}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a published task.

    Attributes:
        plain: the JSON types, where a value is stored just as JSON has it; empty for all other types.
        default: encoded; None where there is none, or where it cannot be written.
    """

    required: bool
    plain: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published task."""

    task: str
    queue: str
    priority: int
    gate: int
    timeout: float
    deadline: float
    tenant: str | None
    lock: tuple[str, ...]
    executor: str
    owner: str | None
    parameters: Mapping[str, Parameter]
    version: int = 1
    schema: Mapping[str, Any] | None = field(default=None, repr=False)
    dedup: Dedup | None = None


def publish(spec: TaskSpec) -> str:
    """A task's contract as JSON. The gate is text: readers of JSON lose digits of large numbers."""
    signature = spec.signature
    parameters = {
        name: {
            "required": parameter.default is parameter.empty,
            "plain": list(_plain_types(signature.hints[name])),
            "default": _default(signature, parameter.default, parameter.empty),
        }
        for name, parameter in signature.parameters.items()
    }
    told = {
        "format": FORMAT, "queue": spec.queue, "priority": spec.priority, "rank": rank_of(spec.priority), "gate": str(spec.gate),
        "timeout": spec.timeout, "deadline": spec.deadline, "tenant": spec.tenant, "lock": spec.lock.by if spec.lock else (),
        "executor": spec.executor, "owner": spec.owner, "version": spec.version, "on_lost": spec.on_lost,
        "cost": spec.cost, "memory": spec.memory, "dedup": spec.dedup.told() if spec.dedup else None,
        "parameters": parameters, "schema": _schema(signature),
    }  # fmt: skip
    return orjson.dumps(told).decode()


def read(task: str, spec: str) -> Published:
    """What a worker has published.

    Raises:
        DeclarationError: by a release that writes it in another way.
    """
    told = orjson.loads(spec)
    if told.get("format") != FORMAT:
        raise DeclarationError(f"task {task}: another release has published it in a form that this one cannot read; update here")
    parameters = {
        name: Parameter(required=one["required"], plain=tuple(one["plain"]), default=one["default"])
        for name, one in told["parameters"].items()
    }
    names = ("queue", "priority", "timeout", "deadline", "tenant", "executor", "owner", "schema")
    return Published(
        task=task,
        gate=int(told["gate"]),
        lock=tuple(told["lock"]),
        parameters=parameters,
        version=told.get("version", 1),
        dedup=Dedup.read(told["dedup"]) if told.get("dedup") else None,
        **{name: told[name] for name in names},
    )


def unknown(task: str, published: Iterable[str]) -> NotFound:
    """The error for a task that nobody has published."""
    names = list(published)
    if not names:
        return NotFound(
            "no worker has published its tasks in this store yet; start one of this release, or name the code: --app module:app"
        )
    near = difflib.get_close_matches(task, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(sorted(names)[:20])}"
    return NotFound(f"no worker has published a task {task!r}{hint}")


# --- what a person typed -------------------------------------------------------------------------------------------------


def parse(text: str, where: str, so: str = NOT_ENQUEUED) -> Any:
    """Read JSON strictly: no number loses a digit, no name stands twice. `so` is what a refusal means, for its sentence.

    Raises:
        InvalidArguments: it is not well-formed; the sentence says where.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidArguments(f"{where}: the name {twice!r} stands twice; {so}")
        return made

    def no_constant(name: str) -> Any:
        raise InvalidArguments(f"{where}: {name} is not JSON; {so}")

    def exact(number: str) -> float:
        made = float(number)
        if not isfinite(made) or Decimal(number) != Decimal(repr(made)):
            raise InvalidArguments(f"{where}: {number} would lose digits as a number; write it in quotes; {so}")
        return made

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=no_constant, parse_float=exact)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidArguments(f"{where}: not well-formed JSON: {error.msg} at {place}; {so}") from None
    except (RecursionError, ValueError) as error:
        raise InvalidArguments(f"{where}: cannot be read: {str(error) or 'nested too deep'}; {so}") from None


def value_of(parameter: Parameter | None, schema: Mapping[str, Any] | None, text: str, name: str) -> Any:
    """Read the value of `--arg name=value`: JSON where it is JSON, otherwise text; text for a parameter that takes texts only."""
    takes = _types(schema)
    if parameter is not None and takes and takes <= {"string", "null"}:
        return None if text == "null" and "null" in takes else text
    try:
        return parse(text, name)
    except InvalidArguments:
        if takes and takes <= JSON_ONLY:
            raise InvalidArguments(
                f"{name}={text!r} is not {' or '.join(sorted(takes))}, which is what the task takes; nothing was enqueued", name
            ) from None
        return text


def stored_form(value: Any, path: str = "", depth: int = 0) -> Any:
    """Plain JSON as it is stored. What has a tag already (`{"$date": …}`, copied from a stored job) stays as it is.

    Raises:
        InvalidArguments: a text or a number that cannot be stored.
    """
    if depth > DEEPEST:
        raise InvalidArguments(f"{path}: nested deeper than {DEEPEST} levels; pass a flatter value", path)
    if isinstance(value, dict):
        first = next(iter(value), "")
        if first in TAGS:
            try:
                storable_form = "\\u0000" not in orjson.dumps(value).decode()
            except (TypeError, ValueError):
                storable_form = False
            if not storable_form:
                raise InvalidArguments(f"{path}: what stands behind {first} cannot be stored", path)
            return value
        if not any(name.startswith("$") for name in value):
            encode(dict.fromkeys(value), {}, path)  # the names
            return {name: stored_form(item, f"{path}.{name}", depth + 1) for name, item in value.items()}
    if isinstance(value, list):
        return [stored_form(item, f"{path}[{at}]", depth + 1) for at, item in enumerate(value)]
    return orjson.loads(encode(value, {}, path))


def check_names(published: Published, named: Mapping[str, Any]) -> None:
    """Refuse unknown and missing parameters.

    Raises:
        InvalidArguments: with the nearest name.
    """
    for name in named:
        if name not in published.parameters:
            near = difflib.get_close_matches(name, list(published.parameters), n=1)
            takes = ", ".join(published.parameters) or "no parameters"
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {takes}"
            raise InvalidArguments(
                f"{published.task}: {name} is not a parameter of the task; {hint}{'' if near else '.'} Nothing was enqueued", name
            )
    for name, parameter in published.parameters.items():
        if parameter.required and name not in named:
            raise InvalidArguments(f"{published.task}: {name} is required; nothing was enqueued", name)


def make(published: Published, named: Mapping[str, Any], options: Options, queue: str | None, payload_limit: int) -> NewJob:
    """A job of a published task, from plain JSON.

    Raises:
        InvalidArguments: a name is unknown or missing, or a value cannot be stored, or the lock key cannot be told without code.
        PayloadTooLarge: above `payload_limit` bytes.
        EnqueueError: an option is wrong.
    """
    task = published.task
    check_names(published, named)
    encoded = versioned(orjson.dumps({name: stored_form(value, name) for name, value in named.items()}), published.version)
    check_size(task, len(encoded), payload_limit)
    lock_key = ""
    if published.lock:
        values = {name: _told(published, named, name) for name in sorted(published.lock)}
        lock_key = key_of(task, encode_fields(values, {}))
    tenant = options.tenant
    if tenant is None and published.tenant:
        tenant = _told(published, named, published.tenant)
    try:
        delay, run_at = moment(options.run_after)
        rank = rank_of(published.priority if options.priority is None else options.priority)
        deadline = published.deadline if options.deadline is None else seconds(options.deadline, "deadline")
    except DeclarationError as error:
        raise EnqueueError(f"{task}: {error.message}; nothing was enqueued") from None
    job = NewJob(
        new_id(), task, queue or published.queue, rank, published.gate, tenant_of(task, tenant, published.tenant or "tenant"),
        lock_key, encoded.decode(), len(encoded), delay, run_at, deadline,
    )  # fmt: skip
    timed = options.run_after is not None
    if options.dedup_key is not None:
        given_key(job, published.dedup, options.dedup_key, timed=timed)
    elif published.dedup is not None and options.dedup is not False:
        values = {name: _told(published, named, name, "dedup") for name in published.dedup.by}
        keep_one(job, published.dedup, key_of(published.dedup.prefix(task), encode_fields(values, {})), timed)
    return job


def _told(published: Published, named: Mapping[str, Any], name: str, use: str = "") -> Any:
    """The value that tenant, lock or dedup go by, where it is certain to be the one that the task's own code would see."""
    parameter = published.parameters[name]
    use = use or ("tenant" if name == published.tenant else "lock")
    if name not in named:
        if parameter.default is None:
            raise InvalidArguments(
                f"{published.task}: {name}: give it; the {use} goes by it, and its default is not published", name
            )
        return orjson.loads(parameter.default)
    value = named[name]
    kind = "null" if value is None else _JSON_TYPES.get(type(value), type(value).__name__)
    if kind in parameter.plain:
        return value
    wanted = f"write it as {' or '.join(parameter.plain)}" if parameter.plain else "its type is not one of JSON's own"
    raise InvalidArguments(
        f"{published.task}: {name}: the {use} goes by this value, and {wanted}; or give the code: --app module:app."
        " Nothing was enqueued", name,
    )  # fmt: skip


def _plain_types(hint: Any) -> tuple[str, ...]:
    while hasattr(hint, "__supertype__"):  # NewType
        hint = hint.__supertype__
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
    found = [_JSON_TYPES.get(part) for part in parts]
    return tuple(kind for kind in found if kind is not None) if None not in found else ()


def _schema(signature: Signature) -> orjson.Fragment | None:
    """The JSON schema, where it is one that the store can hold."""
    schema = signature.json_schema()
    if schema is None:
        return None
    try:
        encoded = orjson.dumps(schema, default=str)
    except TypeError:  # a text in it that is no Unicode
        return None
    return orjson.Fragment(encoded) if len(encoded) <= LARGEST_SCHEMA and b"\\u0000" not in encoded else None


def _default(signature: Signature, value: Any, empty: Any) -> str | None:
    if value is empty:
        return None
    try:
        encoded = encode(value, signature.known).decode()
    except (InvalidArguments, DeclarationError):
        return None
    return encoded if len(encoded) <= LARGEST_DEFAULT else None


def _types(schema: Mapping[str, Any] | None) -> frozenset[str]:
    """The JSON types that a schema takes, where they are plain to see."""
    if not schema:
        return frozenset()
    found: set[str] = set()
    for one in schema.get("anyOf", (schema,)):
        kind = one.get("type")
        if not isinstance(kind, str):
            return frozenset()
        found.add(kind)
    return frozenset(found)

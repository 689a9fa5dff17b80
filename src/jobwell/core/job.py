"""A job that is to be enqueued: everything the store needs, checked and encoded."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import orjson

from jobwell.core.dedup import LONGEST_KEY, Dedup, by_key
from jobwell.core.duration import Duration, seconds, text
from jobwell.core.envelope import EXACT, versioned
from jobwell.core.errors import NOT_ENQUEUED, DeclarationError, EnqueueError, InvalidArguments, PayloadTooLarge
from jobwell.core.ids import new_id
from jobwell.core.ranks import rank_of
from jobwell.core.task import TaskSpec
from jobwell.core.text import storable

LONGEST_TENANT = 200
READABLE = 64  # letters of a key's values; longer ones are hashed
FARTHEST = timedelta(days=3660)
FIRST_YEAR, LAST_YEAR = 1970, 2199  # beyond them somebody's "never" or "always" is meant


@dataclass(frozen=True, slots=True)
class Options:
    """What one enqueue may say differently from the declaration."""

    run_after: Duration | datetime | None = None
    priority: int | None = None
    tenant: str | None = None
    deadline: Duration | None = None
    dedup: Dedup | Literal[False] | None = None
    dedup_key: str | None = None
    after: tuple[UUID, ...] = ()
    ended: bool | None = None


PLAIN = Options()


@dataclass(slots=True)
class NewJob:
    """A checked and encoded job that is not stored yet: what `task.job(…)` returns and `enqueue_many` takes.

    Attributes:
        id: already made, so a caller may keep it before the insert.
        delay: seconds from now until it is due, on the database clock; None where `run_at` is given.
        run_at: the moment it is due.
        dedup, dedup_key: what makes it the only one of its kind; None and empty: nothing does.
        after: the jobs that it follows; ended: for their ends, whatever they are.
    """

    id: UUID
    task: str
    queue: str
    rank: int
    gate: int
    tenant: str
    lock_key: str
    args: str
    size: int
    delay: float | None
    run_at: datetime | None
    deadline: float
    dedup: Dedup | None = None
    dedup_key: str = ""
    after: tuple[UUID, ...] = ()
    ended: bool = False


def make(spec: TaskSpec, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options, payload_limit: int) -> NewJob:
    """Validate and encode one job.

    Raises:
        InvalidArguments: the arguments do not fit, or cannot be stored.
        PayloadTooLarge: above `payload_limit` bytes.
        EnqueueError: an option is wrong.
    """
    named = spec.signature.bind(args, kwargs)
    encoded = spec.signature.encode(named)
    if spec.version > 1:
        encoded = versioned(encoded, spec.version)
    size = len(encoded)
    check_size(spec.name, size, payload_limit)
    delay, run_at, rank, deadline = 0.0, None, 100 - spec.priority, spec.deadline
    tenant = _tenant(spec, named, options) if spec.tenant or options.tenant is not None else ""
    if options is not PLAIN:
        try:
            delay, run_at = moment(options.run_after)
            if options.priority is not None:
                rank = rank_of(options.priority)
            if options.deadline is not None:
                deadline = seconds(options.deadline, "deadline")
        except DeclarationError as error:
            raise EnqueueError(f"{spec.name}: {error.message}; nothing was enqueued") from None
    job = NewJob(
        new_id(), spec.name, spec.queue, rank, spec.gate, tenant, lock_key(spec, named) if spec.lock else "",
        encoded.decode(), size, delay, run_at, deadline, after=options.after, ended=options.ended is True,
    )  # fmt: skip
    terms = spec.dedup
    if options is not PLAIN and (options.dedup is not None or options.dedup_key is not None):
        _on_other_terms(job, spec, named, options)
    elif terms is not None:
        job.dedup, job.dedup_key = terms, dedup_key(spec, terms, named)
        if terms.wait and options.run_after is None:
            job.delay = terms.wait
    if job.after and job.dedup is not None:
        raise EnqueueError(
            f"{spec.name}: a job that follows others cannot have a key (dedup); give `using(dedup=False)`, or leave `after` out;"
            " nothing was enqueued"
        )
    return job


def dedup_key(spec: TaskSpec, terms: Dedup, named: Mapping[str, Any]) -> str:
    """The key that validated arguments have. Raises KeyError: the terms name no parameter of the task."""
    values = {}
    plain = True  # is its own encoding
    for name in terms.by:
        value = values[name] = named[name] if name in named else spec.signature.parameters[name].default
        kind = type(value)
        plain = plain and (kind is str or (kind is int and -EXACT <= value <= EXACT))
    if not plain:
        return key_of(terms.prefix(spec.name), spec.signature.encode(values))
    encoded = orjson.dumps(values)
    prefix = spec.name if terms.scope == "task" else terms.prefix(spec.name)
    return f"{prefix}:{encoded.decode()}" if len(encoded) <= READABLE else key_of(prefix, encoded)


def _on_other_terms(job: NewJob, spec: TaskSpec, named: Mapping[str, Any], options: Options) -> None:
    terms = spec.dedup if options.dedup is None else options.dedup or None
    if options.dedup_key is not None:
        given_key(job, terms, options.dedup_key, timed=options.run_after is not None)
    elif terms is not None:
        try:
            key = dedup_key(spec, terms, named)
        except KeyError as error:
            raise EnqueueError(f"{spec.name}: dedup: {error} is not a parameter of the function; nothing was enqueued") from None
        keep_one(job, terms, key, options.run_after is not None)


def given_key(job: NewJob, terms: Dedup | None, key: str, *, timed: bool = False) -> None:
    """A key that the caller gives in place of the parameters.

    Raises:
        EnqueueError: it is none.
    """
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY or not storable(key):
        raise EnqueueError(
            f"{job.task}: dedup_key={key!r} must be a text of 1 to {LONGEST_KEY} letters that can be stored; nothing was enqueued"
        )
    terms = by_key(terms)
    keep_one(job, terms, f"{terms.prefix(job.task)}={key}", timed)


def keep_one(job: NewJob, terms: Dedup, key: str, timed: bool) -> None:  # noqa: FBT001  positional where it is called per job
    """Note on a job what it is the only one of. `timed`: its due time was given, and is not the one that debouncing wants."""
    job.dedup, job.dedup_key = terms, key
    if terms.wait and not timed:
        job.delay = terms.wait


def moment(value: Duration | datetime | None) -> tuple[float, datetime | None]:
    """Read `run_after`: a duration becomes a delay, a datetime (or ISO text with an offset) a moment.

    Raises:
        DeclarationError: it cannot be read, it has no zone, or it is absurdly far away.
    """
    if value is None:
        return 0.0, None
    if isinstance(value, str) and value[:4].isdigit() and "-" in value:
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise DeclarationError(f"run_after={value!r} is neither a duration like '10m' nor an ISO date and time") from None
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise DeclarationError(
                f"run_after={value.isoformat()!r} has no time zone, so it names a different moment on every host;"
                " give an aware datetime (datetime.now(UTC), or with ZoneInfo('Asia/Almaty')), or a duration"
            )
        if not FIRST_YEAR <= value.year <= LAST_YEAR:
            raise DeclarationError(f"run_after={value.isoformat()!r} is too far away: the years are {FIRST_YEAR} to {LAST_YEAR}")
        return 0.0, value.astimezone(UTC)
    delay = seconds(value, "run_after")
    if delay > FARTHEST.total_seconds():
        raise DeclarationError(f"run_after={text(delay)!r} is more than ten years away")
    return delay, None


def upgraded(spec: TaskSpec, version: int, stored: str, so: str = "") -> dict[str, Any]:
    """Stored arguments of this version or an older one, as the task takes them now: step by step through the declared upgrades.

    Where no step is declared, the forms are taken to be the same. `so` is what a refusal means, for its sentence.

    Raises:
        InvalidArguments: they do not fit.
        Exception: what an upgrade raises.
    """
    if version == spec.version:
        return spec.signature.decode(stored, so)
    args = spec.signature.read(stored)
    for step in range(version, spec.version):
        upgrade = spec.upgrades.get(step)
        if upgrade is not None:
            args = upgrade(args)
    return spec.signature.validate(args, so)


def lock_key(spec: TaskSpec, named: Mapping[str, Any]) -> str:
    """The key of `Lock`: the task and a hash of the values in canonical form; readable where the values are short."""
    if spec.lock is None:
        return ""
    values = {name: spec.signature.value_of(named, name) for name in sorted(spec.lock.by)}
    return key_of(spec.name, spec.signature.encode(values))


def key_of(task: str, encoded: bytes) -> str:
    """The key of encoded values, which were given in the order of their names; whatever the order of names inside of them."""
    if b"{" in encoded[1:]:
        encoded = orjson.dumps(orjson.loads(encoded), option=orjson.OPT_SORT_KEYS)
    if len(encoded) <= READABLE:
        return f"{task}:{encoded.decode()}"
    return f"{task}:{hashlib.blake2b(encoded, digest_size=16).hexdigest()}"


def tenant_of(task: str, value: Any, where: str) -> str:
    """The name of a tenant.

    Raises:
        InvalidArguments: it is too long, or cannot be stored.
    """
    if value is None:
        return ""
    tenant = value if isinstance(value, str) else str(value)
    if len(tenant) > LONGEST_TENANT:
        raise InvalidArguments(f"{task}: {where}: a tenant's name has at most {LONGEST_TENANT} characters", where)
    if not storable(tenant) or "\U0010ffff" in tenant:
        raise InvalidArguments(f"{task}: {where}: the tenant's name holds a character that cannot be stored", where)
    return tenant


def check_size(task: str, size: int, payload_limit: int, so: str = NOT_ENQUEUED) -> None:
    """Refuse arguments above the limit. `so` is what that means, for the sentence.

    Raises:
        PayloadTooLarge: with both figures.
    """
    if size > payload_limit:
        raise PayloadTooLarge(
            f"{task}: the arguments take {size:,} bytes, the limit is {payload_limit:,}; {so}."
            " Store the data where it belongs and pass its id, path or URL"
        )


def _tenant(spec: TaskSpec, named: Mapping[str, Any], options: Options) -> str:
    value = options.tenant
    if value is None and spec.tenant:
        value = spec.signature.value_of(named, spec.tenant)
    return tenant_of(spec.name, value, spec.tenant or "tenant")

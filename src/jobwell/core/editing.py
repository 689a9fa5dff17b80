"""Other arguments for a failed job: which may be given, and how they go in place of the stored ones. Pure."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

import orjson

from jobwell.core.envelope import encode, version_of
from jobwell.core.errors import NOT_CHANGED, InvalidArguments
from jobwell.core.job import check_size, upgraded
from jobwell.core.published import Published, stored_form
from jobwell.core.task import TaskSpec


@dataclass(frozen=True, slots=True)
class Edit:
    """Arguments that go in place of stored ones; what is not named stays as it is.

    Attributes:
        args: by name, in the form in which they are stored.
        limit: bytes that the arguments of one job may take.
    """

    args: Mapping[str, Any]
    limit: int

    @classmethod
    def of_json(cls, args: Mapping[str, Any], limit: int) -> Self:
        """From plain JSON, as a person types it.

        Raises:
            InvalidArguments: there is nothing in it, or a value cannot be stored.
        """
        return cls(_given({name: stored_form(value, str(name)) for name, value in args.items()}), limit)

    @classmethod
    def of_values(cls, args: Mapping[str, Any], spec: TaskSpec | None, limit: int) -> Self:
        """From values, as code passes them.

        Args:
            args: by name.
            spec: of the task, where its code is known: then classes of its signature may stand among them.
            limit: bytes that the arguments of one job may take.

        Raises:
            InvalidArguments: there is nothing in it, or a value cannot be stored.
        """
        known = spec.signature.known if spec is not None else {}
        return cls(_given({name: orjson.loads(encode(value, known, str(name))) for name, value in args.items()}), limit)

    @property
    def names(self) -> list[str]:
        """What is edited, for the audit."""
        return sorted(self.args)

    def stored(self) -> dict[str, Any]:
        """For the row of an action on many. As text: the store would have numbers and names in a form of its own."""
        return {"edit": orjson.dumps(dict(self.args)).decode(), "limit": self.limit}

    @classmethod
    def read(cls, edit: str | None, limit: int | None) -> Self | None:
        """The same again."""
        return None if edit is None or limit is None else cls(orjson.loads(edit), limit)


def _given(args: dict[str, Any]) -> dict[str, Any]:
    if not args:
        raise InvalidArguments(f"args: give at least one argument by name; {NOT_CHANGED}", "args")
    return args


def merged(job: UUID, task: str, stored: str | None, edit: Edit, *, known: Published | None, spec: TaskSpec | None) -> str:
    """The stored arguments with these in their place. What is not edited keeps its bytes' meaning, tags included.

    Args:
        job: whose they are.
        task: of it.
        stored: its arguments.
        edit: what goes in their place.
        known: the task as its workers have published it, or as its code declares it.
        spec: where its code is known: then each value is held against the signature, as at an enqueue.

    Raises:
        InvalidArguments, PayloadTooLarge: with the job and what does not fit.
    """
    there = orjson.loads(stored) if stored is not None else None
    if not isinstance(there, dict):
        raise InvalidArguments(f"job {job}: its stored arguments cannot be read, so they cannot be edited; {NOT_CHANGED}")
    names = set(there) | set(known.parameters if known is not None and version_of(stored or "")[0] == known.version else ())
    for name in edit.args:
        if name.startswith("$") or name not in names:
            has = ", ".join(sorted(name for name in names if not name.startswith("$"))) or "none"
            raise InvalidArguments(f"job {job}: {name} is not an argument of {task}; it has {has}; {NOT_CHANGED}", name)
        by = known.dedup.by if known is not None and known.dedup is not None else ()
        if known is not None and name in (*known.lock, known.tenant, *by):
            use = "tenant" if name == known.tenant else "lock" if name in known.lock else "dedup"
            raise InvalidArguments(
                f"job {job}: the {use} of {task} goes by {name}, which was settled when the job was enqueued; enqueue a new job"
                f" with the right value and discard this one; {NOT_CHANGED}", name,
            )  # fmt: skip
    made = orjson.dumps(there | dict(edit.args)).decode()
    check_size(f"job {job}: {task}", len(made.encode()), edit.limit, NOT_CHANGED)
    if spec is not None:
        _check_values(job, spec, made)
    return made


def _check_values(job: UUID, spec: TaskSpec, made: str) -> None:
    version, args = version_of(made)
    if version > spec.version:
        raise InvalidArguments(
            f"job {job}: its payload has version {version} of {spec.name}, and this code knows {spec.version}, so it cannot be"
            f" checked here; {NOT_CHANGED}"
        )
    try:
        upgraded(spec, version, args, NOT_CHANGED)
    except InvalidArguments as error:
        raise InvalidArguments(f"job {job}: {error.message}", error.path) from None
    except Exception as error:
        raise InvalidArguments(
            f"job {job}: the code of {spec.name} does not take them: {type(error).__name__}: {error}; {NOT_CHANGED}"
        ) from error


def shown(spec: TaskSpec | None, stored: str | None) -> dict[str, Any]:
    """Stored arguments for whoever looks at them: as the task takes them, or plain JSON where that does not go."""
    if stored is None:
        return {}
    with contextlib.suppress(Exception):  # a failed job may hold anything, and upgrades of the user's may raise anything
        version, rest = version_of(stored)
        if spec is not None and version <= spec.version:
            return upgraded(spec, version, rest)
    found = orjson.loads(stored)
    return found if isinstance(found, dict) else {}

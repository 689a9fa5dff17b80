"""The part of an App that looks at failed jobs and decides about them: `app.quarantine`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from jobwell.client.handle import Handle
from jobwell.core.failed import FailedJob

if TYPE_CHECKING:
    from jobwell.client.client import Client
    from jobwell.store.statements import Program

T = TypeVar("T")
Job = Handle[Any] | UUID | str
APPLICATION = "the application"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined(FailedJob):
    """A failed job as it waits for a decision.

    Attributes:
        args: its arguments, with the types of its task where its code is known here and they fit; plain JSON otherwise.
        origin: where the error comes from: code, external, limits or validation; None where nobody has said.
        edits: how often somebody has given it other arguments.
    """

    args: dict[str, Any]
    origin: str | None
    edits: int


class Quarantine:
    """Failed jobs, one at a time. For many there is `jobwell quarantine retry --group …`.

    Every decision is in the audit with who and why, and on the job (`jobwell jobs show`).
    """

    def __init__(self, client: "Client") -> None:
        self._client = client

    def get(self, job: Job) -> Quarantined:
        """What has failed, and why.

        Args:
            job: its handle, or its id, also as text.

        Raises:
            NotFound: there is no such job.
            Conflict: it is not in the quarantine; the sentence says what it is.
            StoreUnavailable: the database cannot be reached.
        """
        program = self._get(_id(job))
        with self._client.connections.plain() as own:
            return _run(own, program)

    async def aget(self, job: Job) -> Quarantined:
        """As `get`, for async code."""
        from jobwell.store.statements import arun

        async with self._client.connections.of_loop() as own:
            return await arun(own, self._get(_id(job)))

    def retry(
        self, job: Job, *, args: Mapping[str, Any] | None = None, by: str = APPLICATION, why: str | None = None
    ) -> Handle[Any]:
        """Put it back to work: a new attempt budget and a new deadline, the history kept.

        Args:
            job: its handle, or its id, also as text.
            args: arguments by name that go in place of those that it has; what is not named stays as it is. They are held against
                the signature of its task, as at an enqueue, where its code is known here. The original ones are kept.
            by: who, for the audit.
            why: the reason.

        Returns:
            Its handle.

        Raises:
            InvalidArguments, PayloadTooLarge: the arguments do not fit, or name one by which the tenant or the lock goes.
            NotFound: there is no such job.
            Conflict: it is not in the quarantine; the sentence says what it is.
            StoreUnavailable: the database cannot be reached.

        Guarantee: where it raises (but for a `StoreUnavailable` that is `unsure`), nothing was changed.
        """
        program = self._retry(_id(job), args, by, why)
        with self._client.connections.plain() as own, own.transaction():
            return _run(own, program)

    async def aretry(
        self, job: Job, *, args: Mapping[str, Any] | None = None, by: str = APPLICATION, why: str | None = None
    ) -> Handle[Any]:
        """As `retry`, for async code."""
        from jobwell.store.statements import arun

        async with self._client.connections.of_loop() as own, own.transaction():
            return await arun(own, self._retry(_id(job), args, by, why))

    def discard(self, job: Job, *, why: str, by: str = APPLICATION) -> None:
        """Give it up for good: it counts as finished, and cannot be retried any more.

        Args:
            job: its handle, or its id, also as text.
            why: the reason, which stands with the job.
            by: who, for the audit.

        Raises:
            InvalidArguments: there is no reason.
            NotFound: there is no such job.
            Conflict: it is not in the quarantine; the sentence says what it is.
            StoreUnavailable: the database cannot be reached.
        """
        program = self._discard(_id(job), by, why)
        with self._client.connections.plain() as own, own.transaction():
            _run(own, program)

    async def adiscard(self, job: Job, *, why: str, by: str = APPLICATION) -> None:
        """As `discard`, for async code."""
        from jobwell.store.statements import arun

        async with self._client.connections.of_loop() as own, own.transaction():
            await arun(own, self._discard(_id(job), by, why))

    def _get(self, job: UUID) -> "Program[Quarantined]":
        from jobwell.core.editing import shown
        from jobwell.store import decisions

        found = yield from decisions.one(self._client.statements, job)
        spec = self._client.catalog.get(found["task"])
        told = {each.name: found[each.name] for each in fields(FailedJob) if each.name not in ("message", "failed_at")}
        return Quarantined(
            **told, message=found["message"] or "", failed_at=found["ended_at"], origin=found["origin"],
            edits=len(found["edits"]), args=shown(spec, found["args"]),
        )  # fmt: skip

    def _retry(self, job: UUID, args: Mapping[str, Any] | None, by: str, why: str | None) -> "Program[Handle[Any]]":
        from jobwell.store import decisions

        client = self._client
        limit = client.database.settings.payload_limit
        task = yield from decisions.retry(client.statements, job, args, code=client.catalog.get, limit=limit, actor=by, why=why)
        return Handle(job, task, created=False, _client=client)

    def _discard(self, job: UUID, by: str, why: str) -> "Program[None]":
        from jobwell.store import decisions

        yield from decisions.discard(self._client.statements, job, actor=by, why=why)


class Deciding(ABC):
    """What has failed, and what becomes of it."""

    @property
    @abstractmethod
    def client(self) -> Any:
        """What asks the store; the App has it."""

    @property
    def quarantine(self) -> Quarantine:
        """Failed jobs that wait for a decision: `app.quarantine.retry(job, args={"email": …}, why="a typing error")`."""
        return Quarantine(self.client)


def _id(job: Job) -> UUID:
    from jobwell.client import results

    return job.id if isinstance(job, Handle) else results.identify(job)


def _run(conn: Any, program: "Program[T]") -> T:
    from jobwell.store.statements import run

    return run(conn, program)

"""What an enqueue returns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, overload
from uuid import UUID

if TYPE_CHECKING:
    from jobwell.client.client import Client

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Handle(Generic[R]):
    """A stored job.

    Attributes:
        id: of the job; sorts by time.
        task: the task's name.
        created: False where an equal job was there already and this is its id.
    """

    id: UUID
    task: str
    created: bool
    _client: "Client"

    def status(self) -> str:
        """The job's state now: scheduled, ready, running, retrying, succeeded, failed or cancelled.

        Raises:
            NotFound: it is gone (its retention is over), or not committed yet.
            StoreUnavailable: the database cannot be reached.
        """
        return self._client.status(self.id)

    async def astatus(self) -> str:
        """As `status`, for async code."""
        return await self._client.astatus(self.id)

    def __repr__(self) -> str:
        return f"<job {self.id} of {self.task}>"


class Enqueued(Sequence[UUID]):
    """The ids of many jobs, in input order, 16 bytes each."""

    def __init__(self, ids: bytes | bytearray) -> None:
        self._ids = bytes(ids)

    def __len__(self) -> int:
        return len(self._ids) // 16

    @overload
    def __getitem__(self, at: int) -> UUID: ...
    @overload
    def __getitem__(self, at: slice) -> list[UUID]: ...
    def __getitem__(self, at: int | slice) -> UUID | list[UUID]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        index = at + len(self) if at < 0 else at
        if not 0 <= index < len(self):
            raise IndexError(at)
        return UUID(bytes=self._ids[index * 16 : index * 16 + 16])

    def __iter__(self) -> Iterator[UUID]:
        return (UUID(bytes=self._ids[at : at + 16]) for at in range(0, len(self._ids), 16))

    def __repr__(self) -> str:
        return f"<{len(self)} jobs>"

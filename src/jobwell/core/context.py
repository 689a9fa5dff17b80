"""What a running attempt may ask and say. The worker makes it; called directly, a task gets a local one."""

import logging
from collections.abc import Callable, MutableMapping
from typing import Any
from uuid import UUID

import orjson

from jobwell.core import log_fields
from jobwell.core.ids import new_id


class BoundLogger(logging.LoggerAdapter[logging.Logger]):
    """A standard logger with fields of its own; `extra=` of a call comes on top."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Join both."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class _Attempt:
    """What both contexts share."""

    __slots__ = (
        "_began",
        "_cancelled",
        "_deadline_in",
        "_logger",
        "_meta",
        "_monotonic",
        "attempt",
        "id",
        "queue",
        "task",
        "tenant",
    )

    def __init__(
        self,
        *,
        id: UUID,
        task: str,
        queue: str,
        tenant: str,
        attempt: int,
        deadline_in: float | None,
        monotonic: Callable[[], float],
        meta: str | None = None,
    ) -> None:
        self.id = id
        self.task = task
        self.queue = queue
        self.tenant = tenant
        self.attempt = attempt
        self._deadline_in = deadline_in
        self._monotonic = monotonic
        self._began = monotonic()
        self._cancelled = False
        self._meta = meta
        self._logger: BoundLogger | None = None

    @classmethod
    def local(cls, task: str) -> "Any":
        """A context for a plain call, outside any worker: attempt 1, no deadline."""
        return cls(id=new_id(), task=task, queue="", tenant="", attempt=1, deadline_in=None, monotonic=float)

    @property
    def idempotency_key(self) -> str:
        """Give it to outside calls: the same in every attempt of this job, and in a retry from the quarantine."""
        return str(self.id)

    def remaining(self) -> float | None:
        """Seconds until the job's deadline, never below 0; None where it has none."""
        if self._deadline_in is None:
            return None
        return max(0.0, self._deadline_in - (self._monotonic() - self._began))

    @property
    def cancelled(self) -> bool:
        """Whether the attempt has been told to stop: its time limit, a shutdown, a lost lease.

        Async tasks are cancelled besides; a plain function cannot be, and should look here in its loops.
        """
        return self._cancelled

    @property
    def logger(self) -> "BoundLogger":
        """A standard logger whose records carry job, task, attempt, queue, tenant, and what the job was given by `correlate`."""
        if self._logger is None:
            carried = orjson.loads(self._meta) if self._meta else {}
            fields = log_fields.of_job(
                self.id, task=self.task, attempt=self.attempt, queue=self.queue, tenant=self.tenant, carried=carried
            )
            self._logger = BoundLogger(logging.getLogger(f"jobwell.task.{self.task}"), fields)
        return self._logger

    def tell_to_stop(self) -> None:
        """For the worker: `cancelled` is true from now on."""
        self._cancelled = True


class Context(_Attempt):
    """The context of an async task: the first parameter annotated `Context` receives it."""

    __slots__ = ()


class SyncContext(_Attempt):
    """The context of a plain task: the first parameter annotated `SyncContext` receives it."""

    __slots__ = ()

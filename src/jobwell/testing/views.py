"""What a test sees of jobs and drains."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from jobwell.core.catalog import Catalog
from jobwell.core.duration import text as duration_text


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as the store has it.

    Attributes:
        state: scheduled, ready, running, retrying, succeeded, failed or cancelled.
        args: the arguments, decoded to the types of the task's signature (plain JSON where its app does not know the task).
        attempt: how many have begun.
        failures, losses: how many of them the task failed, or its worker vanished.
        run_at: due; of a retry, the next attempt.
        reason: why it failed for good: rejected, exhausted, deadline, lost, invalid. Empty, where it did not.
        error: type and message of what it failed with.
        result: what the function returned, decoded.
    """

    id: UUID
    task: str
    state: str
    queue: str
    priority: int
    tenant: str
    attempt: int
    failures: int
    losses: int
    enqueued_at: datetime
    run_at: datetime
    deadline: datetime | None
    args: dict[str, Any]
    meta: dict[str, Any]
    result: Any
    reason: str
    code: str
    error: str
    note: str

    def __str__(self) -> str:
        given = ", ".join(f"{name}={short(value)}" for name, value in self.args.items())
        parts = [f"{self.task}({given})", self.state + (f" ({self.reason})" if self.reason else ""), f"queue={self.queue}"]
        if self.priority:
            parts.append(f"priority={self.priority}")
        if self.tenant:
            parts.append(f"tenant={self.tenant}")
        wait = (self.run_at - self.enqueued_at).total_seconds()
        if wait >= 0.1:
            parts.append(f"due {duration_text(round(wait, 1))} after its enqueue")
        return " ".join(parts)


def view(row: tuple[Any, ...], catalog: Catalog) -> JobView:
    """Of a row of `testing.all`."""
    (id, task, state, queue, priority, tenant, attempt, failures, losses, enqueued_at, run_at, deadline, args, meta, result,
     reason, code, error_type, message, note) = row  # fmt: skip
    spec = catalog.get(task)
    given: dict[str, Any] = orjson.loads(args or "{}")
    value = orjson.loads(result) if result else None
    if spec is not None:
        try:
            given = spec.signature.decode(args or "{}")
            value = spec.signature.decode_result(result) if result else None
        except Exception as error:  # noqa: BLE001  shown as stored: the payload no longer fits the task
            note = f"{note or ''} (shown as stored: {error})".strip()
    return JobView(
        id, task, state, queue, priority, tenant, attempt, failures, losses, enqueued_at, run_at, deadline, given,
        orjson.loads(meta or "{}"), value, reason or "", code or "",
        f"{error_type}: {message}" if error_type else message or "", note or "",
    )  # fmt: skip


def short(value: Any, most: int = 60) -> str:
    """A value in a line of a message."""
    try:
        shown = repr(value)
    except Exception:  # noqa: BLE001  of the user's class
        shown = f"<{type(value).__name__}>"
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt that a drain ran.

    Attributes:
        id: of the job.
        attempt: its number.
        outcome: succeeded, retrying, failed, snoozed, released, or lost (its worker vanished).
        error: what the task raised, the object itself; None, where nothing was raised.
    """

    id: UUID
    task: str
    attempt: int
    outcome: str
    error: BaseException | None = field(default=None, compare=False)

    def __str__(self) -> str:
        said = f": {type(self.error).__name__}: {short(self.error)}" if self.error is not None else ""
        return f"{self.task} attempt {self.attempt} {self.outcome}{said}"


@dataclass(frozen=True, slots=True)
class Drained(Sequence[Ran]):
    """What a drain did, attempt by attempt, in the order in which they ran."""

    ran: tuple[Ran, ...] = ()

    @property
    def counts(self) -> Mapping[str, int]:
        """Attempts by outcome; what did not happen is not there."""
        return dict(Counter(one.outcome for one in self.ran))

    @property
    def succeeded(self) -> int:
        """Attempts that succeeded."""
        return self.counts.get("succeeded", 0)

    @property
    def retrying(self) -> int:
        """Attempts that failed and come again."""
        return self.counts.get("retrying", 0)

    @property
    def failed(self) -> int:
        """Jobs that went to the quarantine."""
        return self.counts.get("failed", 0)

    @property
    def errors(self) -> list[BaseException]:
        """What tasks raised, in order."""
        return [one.error for one in self.ran if one.error is not None]

    def of(self, task: Any) -> list[Ran]:
        """The attempts of one task, given itself or by name."""
        wanted = getattr(task, "name", task)
        return [one for one in self.ran if one.task == wanted]

    def __len__(self) -> int:
        return len(self.ran)

    def __getitem__(self, at: Any) -> Any:
        return self.ran[at]

    def __iter__(self) -> Iterator[Ran]:
        return iter(self.ran)

    def __str__(self) -> str:
        if not self.ran:
            return "nothing was ready"
        return "\n".join([", ".join(f"{count} {outcome}" for outcome, count in self.counts.items()), *map(str, self.ran)])

"""Which jobs a person means: by id, or by what they have in common. Data, so that it can be stored and gone on with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Self
from uuid import UUID

NOT_RUNNING = "not running"  # every other state of a live job


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A choice of jobs. What is None does not narrow it.

    Attributes:
        ids: only these.
        state: of live jobs: waiting, scheduled, ready, running or retrying; or "not running": all of them but running.
        reason: of failed jobs: why.
        fingerprint: of failed jobs: task, error and place in one.
        until: enqueued (of failed jobs: failed) no later than this. What comes, or fails again, meanwhile is not taken too.
    """

    ids: Sequence[UUID] | None = None
    state: str | None = None
    reason: str | None = None
    fingerprint: str | None = None
    queue: str | None = None
    task: str | None = None
    tenant: str | None = None
    until: datetime | None = None

    def parameters(self) -> dict[str, Any]:
        """As statements take it."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**found, "ids": list(self.ids) if self.ids is not None else None}

    def said(self) -> dict[str, Any]:
        """What a person gave: for the audit and for lists."""
        given = {name: value for name, value in self.parameters().items() if value is not None}
        return {name: value for name, value in given.items() if name not in ("ids", "until")}

    def stored(self) -> dict[str, Any]:
        """As plain JSON."""
        given = {name: value for name, value in self.parameters().items() if value is not None}
        if "ids" in given:
            given["ids"] = [str(job) for job in given["ids"]]
        if "until" in given:
            given["until"] = given["until"].isoformat()
        return given

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        """The same again from its JSON."""
        given = dict(stored)
        if "ids" in given:
            given["ids"] = [UUID(job) for job in given["ids"]]
        if "until" in given:
            given["until"] = datetime.fromisoformat(given["until"])
        return cls(**given)

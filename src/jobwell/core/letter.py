"""A report that is about to be sent: what hooks get, and mail is made of."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file.

    Attributes:
        name: such as failed-2030-01-31.xlsx.
        content_type: such as text/csv.
        data: what is in it.
    """

    name: str
    content_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report on failed jobs, for `@app.on_report`.

    Attributes:
        id: the same for one report, however often it is handed over.
        subscription: of which one; `jobwell quarantine subscriptions show` tells about it.
        kind: daily, threshold, or test.
        worker: the id of the worker process that sends it.
        at: when it was made, by the database's clock.
        since: the failures after this moment, `until` this one.
        total: how many have failed.
        owner: that the subscription is for, or None.
        recipients: who is to have it.
        subject: on one line.
        text: as plain text.
        html: as a page of its own.
        attachments: the list of jobs; empty where there is none.
    """

    id: str
    subscription: int
    kind: Literal["daily", "threshold", "test"]
    worker: UUID
    at: datetime
    since: datetime
    until: datetime
    total: int
    owner: str | None
    recipients: tuple[str, ...]
    subject: str
    text: str
    html: str
    attachments: tuple[Attachment, ...]

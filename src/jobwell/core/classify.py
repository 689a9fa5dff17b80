"""What kind of error it is: temporary, logical, or unknown. Data, matched by dotted name without importing anything.

This is the part of the table that the standard library needs; rules for other libraries are rows of the same form.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["temporary", "logical", "throttled", "unknown"]
Origin = Literal["code", "external", "limits", "validation"]

TABLE: Final[dict[str, Kind]] = {
    # Named classes match themselves and their subclasses; the nearest in the MRO wins.
    "builtins.TimeoutError": "temporary",
    "builtins.ConnectionError": "temporary",
    "builtins.BlockingIOError": "temporary",
    "builtins.InterruptedError": "temporary",
    "socket.gaierror": "temporary",
    "http.client.RemoteDisconnected": "temporary",
    "smtplib.SMTPServerDisconnected": "temporary",
    "smtplib.SMTPConnectError": "temporary",
    # What a caller's own statements meet when the database is busy or away.
    "psycopg.errors.SerializationFailure": "temporary",
    "psycopg.errors.DeadlockDetected": "temporary",
    "psycopg.errors.LockNotAvailable": "temporary",
    "psycopg.OperationalError": "temporary",
    "psycopg_pool.PoolTimeout": "temporary",
    # A task that enqueues, into a queue that takes no more for the moment.
    "jobwell.core.errors.QueueFull": "temporary",
    "builtins.FileNotFoundError": "logical",
    "builtins.PermissionError": "logical",
    "builtins.NotADirectoryError": "logical",
    "builtins.IsADirectoryError": "logical",
    "builtins.UnicodeError": "logical",
    "builtins.NotImplementedError": "logical",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an error is.

    Attributes:
        kind: temporary, logical, throttled or unknown.
        origin: own code, an external system, a limit that was reached, or data that does not fit.
        status: of HTTP or SMTP, where the error carries one.
        asked: what the other side asked to wait, as it said it: the text of a `Retry-After` header, or seconds.
        rule: the name in the table that decided; empty where none did.
    """

    kind: Kind
    origin: Origin = "code"
    status: int | None = None
    asked: str | float | None = None
    rule: str = ""


def classify(error: BaseException) -> Verdict:
    """What an error is, by the nearest class in its ancestry that the table names; "unknown" where none is."""
    for ancestor in type(error).__mro__:
        name = f"{ancestor.__module__}.{ancestor.__qualname__}"
        kind = TABLE.get(name)
        if kind:
            return Verdict(kind, rule=name)
    return Verdict("unknown")

"""What an error says of the step that raised it: whether its effect certainly did not happen. Anything else leaves it open."""

from collections.abc import Sequence
from typing import Any, Final

from jobwell.core import error_reading as read
from jobwell.core.classify import classify
from jobwell.core.error_rules import Rules
from jobwell.core.errors import JobwellError, ResourceUnavailable, StoreUnavailable
from jobwell.core.outcome import Compensate, Reject, Retry, Snooze

# Raised before anything was sent. Matched by name, the class or one above it.
UNSENT: Final = (
    "builtins.ConnectionRefusedError", "socket.gaierror", "socket.herror",
    "httpx.ConnectError", "httpx.ConnectTimeout", "httpx.PoolTimeout", "httpx.InvalidURL", "httpx.UnsupportedProtocol",
    "httpx2.ConnectError", "httpx2.ConnectTimeout", "httpx2.PoolTimeout", "httpx2.InvalidURL", "httpx2.UnsupportedProtocol",
    "requests.exceptions.ConnectTimeout", "requests.exceptions.InvalidURL", "requests.exceptions.InvalidSchema",
    "requests.exceptions.MissingSchema", "urllib3.exceptions.NewConnectionError", "urllib3.exceptions.ConnectTimeoutError",
    "aiohttp.ClientConnectorError", "aiohttp.ConnectionTimeoutError", "aiohttp.InvalidURL",
    "botocore.exceptions.EndpointConnectionError", "botocore.exceptions.ConnectTimeoutError",
    "botocore.exceptions.NoCredentialsError", "botocore.exceptions.ParamValidationError",
    "smtplib.SMTPConnectError", "smtplib.SMTPHeloError", "smtplib.SMTPAuthenticationError", "smtplib.SMTPSenderRefused",
    "smtplib.SMTPRecipientsRefused", "aiosmtplib.SMTPConnectError", "aiosmtplib.SMTPHeloError",
    "aiosmtplib.SMTPAuthenticationError", "aiosmtplib.SMTPSenderRefused", "aiosmtplib.SMTPRecipientsRefused",
    "psycopg_pool.PoolTimeout", "psycopg_pool.TooManyRequests",
)  # fmt: skip
# An answer of the other side, by which it has refused: its status, reply or code decides.
SMTP: Final = ("smtplib.SMTPResponseException", "aiosmtplib.SMTPResponseException")
GRPC_REFUSED: Final = frozenset(
    ("INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION",
     "UNIMPLEMENTED", "RESOURCE_EXHAUSTED")
)  # fmt: skip
UNSURE_STATUSES: Final = (408, 409, 499)  # 409 is what some answer to a repeat of what has happened
_DEPTH = 8


def did_not_happen(error: BaseException, rules: Sequence[Rules] = ()) -> bool:
    """Whether an error of a step's function says for certain that the effect did not happen.

    It does where nothing was sent, where the other side has answered that it refuses, or where the code itself says so. All else
    leaves the outcome open: a time-out, a lost connection, an error of the server, and any error of the program itself, which may
    have come after the effect.

    Args:
        error: what it raised.
        rules: of the task and its app: what they call logical or throttled has been refused.

    Guarantee: it never raises, whatever the error does when it is looked at.
    """
    return bool(read.quietly(lambda: _refused(error, rules, 0)))


def _refused(error: BaseException, rules: Sequence[Rules], depth: int) -> bool:
    if depth > _DEPTH or not isinstance(error, Exception):
        return False
    if isinstance(error, Reject | Compensate | Snooze | ResourceUnavailable):
        return True
    if isinstance(error, Retry):  # why it is wished tells
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return cause is None or _refused(cause, rules, depth + 1)
    if isinstance(error, JobwellError):
        return not (isinstance(error, StoreUnavailable) and error.unsure)
    ancestry = read.ancestors(error)
    if any(read.named(name, one) for name in UNSENT for one in ancestry):
        return True
    if issubclass(type(error), BaseExceptionGroup):
        return all(_refused(leaf, rules, depth + 1) for leaf in read.leaves_of(error))
    verdict = classify(error)
    for layer in rules:
        ruled = layer.find(ancestry, verdict.status)
        if ruled is not None:
            return ruled[1] in ("logical", "throttled")
    if verdict.rule.startswith(("requests.", "urllib3.", "urllib.")) and verdict.status is None:
        inner = _inner(error)
        return inner is not None and _refused(inner, rules, depth + 1)
    return _refuses(error, ancestry, verdict.status, throttled=verdict.kind == "throttled")


def _inner(error: Any) -> BaseException | None:
    """What a connection error of requests, urllib3 or urllib wraps."""
    given = read.inner_of(error) or next(iter(read.quietly(lambda: error.args) or ()), None)
    return given if isinstance(given, Exception) else None


def _refuses(error: Any, ancestry: list[type], status: int | None, *, throttled: bool) -> bool:
    """Whether it carries an answer by which the other side has refused."""
    if any(read.named(name, one) for name in SMTP for one in ancestry):
        return 400 <= (status or 0) < 600
    if any(read.named("grpc.RpcError", one) for one in ancestry):
        return read.grpc_of(error)[0] in GRPC_REFUSED
    if status is not None:
        return throttled or status in (501, 505) or (400 <= status < 500 and status not in UNSURE_STATUSES)
    state = read.words(read.get(error, "sqlstate"))  # the statement, or its transaction, was rolled back
    return state is not None and state[:2] in ("22", "23", "28", "3D", "40", "42", "53") and state != "40003"

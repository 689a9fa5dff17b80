"""The table of errors: data, by dotted name. Nothing here is imported to be compared with, so no library need be there.

A named class stands for itself and its subclasses; the nearest in the ancestry wins. A row may say what to look at first (`by`):
a status, an errno, a code of the database. Where that tells nothing, the row's own kind counts; "unknown" there asks the next
ancestor. docs/errors.md is written from this file: `python -m tests.docs.errors_page`.
"""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Kind = Literal["temporary", "logical", "throttled", "unknown"]
Origin = Literal["code", "external", "limits", "validation"]
By = Literal["http", "errno", "sqlstate", "sqlite", "grpc", "smtp", "recipients", "aws", "inside", "certificate"]


class Row(NamedTuple):
    """What an error is, and what is looked at before that is said."""

    kind: Kind
    origin: Origin = "external"
    by: By | None = None


@dataclass(frozen=True, slots=True)
class Library:
    """The rows of one library, by the names under which its errors are known."""

    title: str
    rows: dict[str, Row]


AWAY = Row("temporary")
FULL = Row("temporary", "limits")
REFUSED = Row("logical")
MISUSE = Row("logical", "code")
UNFIT = Row("logical", "validation")
BY_HTTP = Row("unknown", "external", "http")
BY_SMTP = Row("unknown", "external", "smtp")
BY_STATE = Row("unknown", "external", "sqlstate")
BY_GRPC = Row("unknown", "external", "grpc")
WITHIN = Row("unknown", "external", "inside")
SECURE = Row("temporary", "external", "certificate")  # a connection; refused for good where a certificate is not accepted


def _named(prefix: str, *parts: tuple[Row, str]) -> dict[str, Row]:
    return {f"{prefix}.{name}": row for row, names in parts for name in names.split()}


def _all(row: Row, names: str) -> dict[str, Row]:
    return dict.fromkeys(names.split(), row)


def _httpx(package: str) -> dict[str, Row]:
    return _named(
        package, (BY_HTTP, "HTTPStatusError"), (FULL, "PoolTimeout"), (SECURE, "ConnectError"),
        (AWAY, "TimeoutException NetworkError ProxyError RemoteProtocolError"),
        (MISUSE, "UnsupportedProtocol InvalidURL LocalProtocolError CookieConflict StreamError"), (REFUSED, "TooManyRedirects"),
    )  # fmt: skip


def _database(prefix: str, by: By) -> dict[str, Row]:
    """The tree that PEP 249 gives to every driver."""
    return {
        f"{prefix}.OperationalError": Row("temporary", "external", by),
        f"{prefix}.IntegrityError": Row("logical", "validation", by),
        f"{prefix}.DataError": Row("logical", "validation", by),
        f"{prefix}.ProgrammingError": Row("logical", "code", by),
        f"{prefix}.NotSupportedError": Row("logical", "code", by),
    }


LIBRARIES: Final = (
    Library("Python", {
        **_named(
            "builtins", (AWAY, "TimeoutError ConnectionError BlockingIOError InterruptedError"),
            (MISUSE, "FileNotFoundError PermissionError NotADirectoryError IsADirectoryError"),
            (MISUSE, "NotImplementedError NameError RecursionError"), (UNFIT, "UnicodeError"),
            (Row("unknown", "code", "errno"), "OSError"),
            (Row("unknown", "limits"), "MemoryError"),
        ),
        **_named("socket", (AWAY, "gaierror herror")),
        "ssl.SSLError": AWAY, "ssl.SSLCertVerificationError": REFUSED,
        "asyncio.IncompleteReadError": AWAY, "subprocess.TimeoutExpired": AWAY, "json.JSONDecodeError": UNFIT,
        **_named("http.client", (AWAY, "RemoteDisconnected IncompleteRead BadStatusLine"), (MISUSE, "InvalidURL")),
        **_named("urllib.error", (BY_HTTP, "HTTPError"), (AWAY, "ContentTooShortError"), (WITHIN, "URLError")),
        **_named(
            "smtplib", (AWAY, "SMTPServerDisconnected"), (Row("temporary", "external", "smtp"), "SMTPConnectError"),
            (BY_SMTP, "SMTPResponseException"), (Row("unknown", "external", "recipients"), "SMTPRecipientsRefused"),
            (REFUSED, "SMTPNotSupportedError"),
        ),
        **_database("sqlite3", "sqlite"),
    }),
    Library("httpx and httpx2", {**_httpx("httpx"), **_httpx("httpx2")}),
    Library("requests", _named(
        "requests.exceptions", (BY_HTTP, "HTTPError"), (SECURE, "ConnectionError"),
        (AWAY, "Timeout ChunkedEncodingError RetryError"), (Row("unknown"), "JSONDecodeError"), (REFUSED, "TooManyRedirects"),
        (MISUSE, "InvalidURL InvalidSchema MissingSchema InvalidHeader URLRequired StreamConsumedError UnrewindableBodyError"),
    )),
    Library("urllib3", _named(
        "urllib3.exceptions", (AWAY, "TimeoutError ProtocolError ProxyError IncompleteRead ResponseError"),
        (FULL, "EmptyPoolError"), (SECURE, "SSLError"), (Row("temporary", "external", "inside"), "MaxRetryError"),
        (MISUSE, "LocationValueError InvalidHeader ProxySchemeUnsupported"),
    )),
    Library("aiohttp", _named(
        "aiohttp", (BY_HTTP, "ClientResponseError"), (SECURE, "ClientConnectionError"), (AWAY, "ClientPayloadError"),
        (REFUSED, "ClientConnectorCertificateError ServerFingerprintMismatch TooManyRedirects"),
        (MISUSE, "InvalidURL NonHttpUrlClientError"),
    )),
    Library("botocore", _named(
        "botocore.exceptions", (Row("unknown", "external", "aws"), "ClientError"), (SECURE, "ConnectionError HTTPClientError"),
        (AWAY, "IncompleteReadError"), (UNFIT, "ParamValidationError"),
        (MISUSE, "NoCredentialsError PartialCredentialsError NoRegionError ProfileNotFound"),
    )),
    Library("grpc", {"grpc.RpcError": BY_GRPC, "grpc.FutureTimeoutError": AWAY}),
    Library("psycopg and psycopg_pool", {
        "psycopg.Error": BY_STATE, **_database("psycopg", "sqlstate"),
        "psycopg_pool.PoolTimeout": FULL, "psycopg_pool.TooManyRequests": FULL, "psycopg_pool.PoolClosed": MISUSE,
    }),
    Library("asyncpg", {"asyncpg.PostgresError": BY_STATE}),
    Library("SQLAlchemy", {
        "sqlalchemy.exc.DBAPIError": WITHIN, **_database("sqlalchemy.exc", "inside"),
        **_named("sqlalchemy.exc", (FULL, "TimeoutError"), (AWAY, "DisconnectionError"),
                 (UNFIT, "NoResultFound MultipleResultsFound"), (MISUSE, "ArgumentError CompileError NoSuchTableError")),
        "sqlalchemy.orm.exc.StaleDataError": AWAY,
    }),
    Library("redis", _named(
        "redis.exceptions",
        (AWAY, "ConnectionError TimeoutError ReadOnlyError ClusterDownError TryAgainError AskError SlotNotCoveredError"),
        (AWAY, "WatchError LockError"), (FULL, "MaxConnectionsError OutOfMemoryError"),
        (REFUSED, "AuthenticationError AuthorizationError NoPermissionError"), (MISUSE, "ResponseError"), (UNFIT, "DataError"),
        (Row("unknown"), "LockNotOwnedError NoScriptError"),
    )),
    Library("aio-pika and aiormq", _named(
        "aiormq.exceptions", (AWAY, "AMQPConnectionError ChannelInvalidStateError ChannelClosed DeliveryError"),
        (AWAY, "ChannelLockedResource"),
        (REFUSED, "AuthenticationError ProbableAuthenticationError IncompatibleProtocolError ConnectionNotAllowed PublishError"),
        (REFUSED, "ChannelNotFoundEntity ChannelAccessRefused ChannelPreconditionFailed"), (MISUSE, "DuplicateConsumerTag"),
    )),
    Library("aiosmtplib", _named(
        "aiosmtplib", (BY_SMTP, "SMTPResponseException"), (Row("temporary", "external", "smtp"), "SMTPConnectResponseError"),
        (AWAY, "SMTPConnectError SMTPTimeoutError SMTPServerDisconnected"), (REFUSED, "SMTPNotSupported"),
        (Row("unknown", "external", "recipients"), "SMTPRecipientsRefused"),
    )),
    Library("pydantic", {"pydantic_core.ValidationError": UNFIT, "pydantic.PydanticUserError": MISUSE}),
    Library("Django", {
        "django.db.utils.Error": WITHIN, **_database("django.db.utils", "inside"),
        "django.db.utils.InterfaceError": Row("temporary", "external", "inside"),
        **_named("django.core.exceptions", (UNFIT, "ValidationError ObjectDoesNotExist MultipleObjectsReturned"),
                 (UNFIT, "SuspiciousOperation"), (MISUSE, "PermissionDenied FieldError FieldDoesNotExist ImproperlyConfigured")),
        "django.http.Http404": UNFIT,
    }),
    Library("Jobwell", _named(
        "jobwell.core.errors", (FULL, "QueueFull"), (AWAY, "StoreUnavailable"),
        (UNFIT, "InvalidArguments PayloadTooLarge BatchTooLarge"), (MISUSE, "DeclarationError TransactionMisuse"),
    )),
)  # fmt: skip

TABLE: Final[dict[str, Row]] = {name: row for library in LIBRARIES for name, row in library.rows.items()}

# By the number of the operating system. ENOSPC and its like are limits: somebody makes room, and the same goes.
ERRNOS: Final[dict[str, Row]] = {
    **_all(FULL, "ENOSPC EDQUOT EMFILE ENFILE ENOMEM ENOBUFS ENOLCK"),
    **_all(
        AWAY,
        "ECONNRESET ECONNREFUSED ECONNABORTED EPIPE ETIMEDOUT EHOSTUNREACH EHOSTDOWN ENETUNREACH ENETDOWN ENETRESET EAGAIN EINTR"
        " EALREADY EINPROGRESS ESHUTDOWN ENOTCONN EADDRINUSE EADDRNOTAVAIL EBUSY ETXTBSY ESTALE EDEADLK"),
    **_all(
        MISUSE,
        "ENOENT EACCES EPERM ENOTDIR EISDIR EEXIST ENOTEMPTY ENAMETOOLONG EINVAL EROFS ELOOP EXDEV EBADF EFBIG E2BIG ENOTSOCK"
        " EAFNOSUPPORT EPROTONOSUPPORT"),
}  # fmt: skip

# By SQLSTATE: the whole code where it stands here, or else its class, the first two characters.
SQLSTATES: Final[dict[str, Row]] = {
    "08": AWAY, "40": AWAY, "57": AWAY, "58": AWAY, "53": FULL, "54": Row("logical", "limits"),
    "22": UNFIT, "23": UNFIT, "42": MISUSE, "28": REFUSED, "3D": REFUSED, "3F": MISUSE,
    "55P03": AWAY, "55006": AWAY, "25006": AWAY, "25P03": AWAY, "25P04": AWAY, "40002": UNFIT, "57P04": REFUSED,
}  # fmt: skip

# Result codes of SQLite, without what its extended ones add.
SQLITE: Final[dict[int, Row]] = {
    5: AWAY, 6: AWAY, 10: AWAY, 7: FULL, 13: FULL, 1: MISUSE, 3: REFUSED, 8: REFUSED, 12: MISUSE, 19: UNFIT, 20: UNFIT,
}  # fmt: skip

GRPC: Final[dict[str, Row]] = {
    "UNAVAILABLE": AWAY, "DEADLINE_EXCEEDED": AWAY, "ABORTED": AWAY, "RESOURCE_EXHAUSTED": Row("throttled", "limits"),
    "INVALID_ARGUMENT": UNFIT, "OUT_OF_RANGE": UNFIT, "NOT_FOUND": REFUSED, "ALREADY_EXISTS": REFUSED,
    "PERMISSION_DENIED": REFUSED, "UNAUTHENTICATED": REFUSED, "FAILED_PRECONDITION": REFUSED, "UNIMPLEMENTED": REFUSED,
    "DATA_LOSS": REFUSED,
}  # fmt: skip

AWS: Final[dict[str, Row]] = {
    **_all(
        Row("throttled", "limits"),
        "Throttling ThrottlingException ThrottledException RequestThrottledException RequestThrottled TooManyRequestsException"
        " ProvisionedThroughputExceededException RequestLimitExceeded BandwidthLimitExceeded LimitExceededException SlowDown"
        " PriorRequestNotComplete EC2ThrottledException"),
    **_all(
        AWAY,
        "RequestTimeout RequestTimeoutException InternalError InternalFailure InternalServerError ServiceUnavailable"
        " ServiceUnavailableException TransactionInProgressException"),
}  # fmt: skip


def of_status(status: int | None, *, asked: bool) -> Row | None:
    """What an HTTP status says; None where it is no error. `asked`: whether the answer has a `Retry-After`."""
    if status is None:
        return None
    if status == 429 or (status == 503 and asked):
        return Row("throttled", "limits")
    if status in (408, 425):
        return AWAY
    if status in (501, 505):
        return REFUSED
    if 500 <= status < 600:
        return AWAY
    if 400 <= status < 500:
        return UNFIT if status in (400, 422) else REFUSED
    return None


def of_reply(code: int | None) -> Row | None:
    """What an SMTP reply says: 4xx may go later, 5xx will not."""
    if code is None:
        return None
    return AWAY if 400 <= code < 500 else REFUSED if 500 <= code < 600 else None

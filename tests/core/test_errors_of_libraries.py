"""The table of errors against the real libraries: what they raise over loopback, and what they raise when they are made."""

import asyncio
import errno
import importlib
import json
import smtplib
import socket
import sqlite3
import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError, URLError

import aiohttp
import aiormq.exceptions as amqp
import aiosmtplib
import asyncpg
import django.core.exceptions as dj
import django.db.utils as djdb
import grpc
import httpx
import httpx2
import orjson
import psycopg
import psycopg.errors as pg
import psycopg_pool
import pydantic
import pytest
import redis.exceptions as red
import requests
import sqlalchemy as sa
import sqlalchemy.orm
import urllib3
from botocore import exceptions as aws
from django.http import Http404
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from jobwell.core.classify import TABLE, classify
from jobwell.core.error_reading import named


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_name_in_the_table_is_a_real_class_that_it_means(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    cls: Any = getattr(importlib.import_module(module), attribute)
    assert issubclass(cls, BaseException)
    assert named(name, cls)


class Answering(BaseHTTPRequestHandler):
    """Answers /429 with 429; with /429/7 it says `Retry-After: 7` too."""

    def do_GET(self) -> None:
        _, status, *asked = self.path.split("/")
        self.send_response(int(status))
        if asked:
            self.send_header("Retry-After", asked[0])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


def nobody() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


@contextmanager
def silent() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield int(made.getsockname()[1])


@contextmanager
def saying(words: bytes) -> Iterator[int]:
    """A port that says this to the first one who comes, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as made:

        def serve() -> None:
            made.settimeout(5)
            taken, _ = made.accept()
            made.close()  # a second try meets nobody
            with taken:
                taken.settimeout(5)
                if words[:4] == b"HTTP":
                    taken.recv(1000)
                taken.sendall(words)
                taken.shutdown(socket.SHUT_WR)
                while words[:4] != b"HTTP" and taken.recv(1000):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(made.getsockname()[1])
        thread.join()


def raised(call: Callable[[], Any]) -> Exception:
    try:
        call()
    except Exception as error:  # noqa: BLE001  it is what is tested
        return error
    pytest.fail("nothing was raised")


def by_urllib3(url: str, timeout: float) -> None:
    with urllib3.PoolManager(retries=False) as pool:
        answer = pool.request("GET", url, timeout=timeout)
    if answer.status >= 400:
        raise HTTPError(url, answer.status, "", answer.headers, None)  # type: ignore[arg-type]  # urllib3 leaves it to its caller


def by_aiohttp(url: str, timeout: float) -> None:
    async def get() -> None:
        limit = aiohttp.ClientTimeout(total=timeout)
        async with aiohttp.ClientSession(timeout=limit) as session, session.get(url, raise_for_status=True):
            pass

    asyncio.run(get())


def by_urllib(url: str, timeout: float) -> None:
    try:
        urllib.request.urlopen(url, timeout=timeout).close()
    except HTTPError as error:
        error.close()
        raise


CLIENTS = {
    "httpx": lambda url, timeout: httpx.get(url, timeout=timeout, trust_env=False).raise_for_status(),
    "httpx2": lambda url, timeout: httpx2.get(url, timeout=timeout, trust_env=False).raise_for_status(),
    "requests": lambda url, timeout: requests.get(url, timeout=timeout, proxies={"no": "pass"}).raise_for_status(),
    "urllib3": by_urllib3,
    "aiohttp": by_aiohttp,
    "urllib": by_urllib,
}  # fmt: skip
clients = pytest.mark.parametrize("client", CLIENTS)


@clients
@pytest.mark.parametrize(
    ("path", "kind", "origin", "asked"),
    [
        ("429/7", "throttled", "limits", "7"), ("429", "throttled", "limits", None), ("503", "temporary", "external", None),
        ("503/120", "throttled", "limits", "120"), ("500", "temporary", "external", None), ("501", "logical", "external", None),
        ("404", "logical", "external", None), ("422", "logical", "validation", None), ("408", "temporary", "external", None),
    ],
)  # fmt: skip
def test_what_a_server_answers(server: str, client: str, path: str, kind: str, origin: str, asked: str | None) -> None:
    verdict = classify(raised(lambda: CLIENTS[client](f"{server}/{path}", 5)))
    assert (verdict.kind, verdict.origin, verdict.status, verdict.asked) == (kind, origin, int(path[:3]), asked)


@clients
def test_nobody_listens(client: str) -> None:
    error = raised(lambda: CLIENTS[client](f"http://127.0.0.1:{nobody()}/", 5))
    assert (classify(error).kind, classify(error).origin) == ("temporary", "external"), repr(error)


@clients
def test_nobody_answers(client: str) -> None:
    with silent() as port:
        error = raised(lambda: CLIENTS[client](f"http://127.0.0.1:{port}/", 0.05))
    assert (classify(error).kind, classify(error).origin) == ("temporary", "external"), repr(error)


HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"  # aiohttp and urllib leave the body to their caller


@pytest.mark.parametrize(
    ("client", "words"), [*((client, b"HTTP/1.1") for client in CLIENTS), *((client, HALF) for client in list(CLIENTS)[:4])]
)
def test_it_hangs_up_in_the_middle(client: str, words: bytes) -> None:
    with saying(words) as port:
        error = raised(lambda: CLIENTS[client](f"http://127.0.0.1:{port}/", 5))
    assert classify(error).kind == "temporary", repr(error)


@clients
def test_a_scheme_that_there_is_not(client: str) -> None:
    error = raised(lambda: CLIENTS[client]("nonsense://127.0.0.1/", 5))
    assert classify(error).kind == ("unknown" if client == "urllib" else "logical"), repr(error)  # urllib tells it in words only


@pytest.mark.parametrize(
    ("greeting", "kind", "status"),
    [(b"421 later\r\n", "temporary", 421), (b"554 never\r\n", "logical", 554), (b"", "temporary", None)],
)  # fmt: skip
def test_the_greeting_of_a_mail_server(greeting: bytes, kind: str, status: int | None) -> None:
    async def send() -> None:
        async with aiosmtplib.SMTP(hostname="127.0.0.1", port=port, timeout=5, use_tls=False, start_tls=False):
            pass

    for call in (lambda: smtplib.SMTP("127.0.0.1", port, timeout=5), lambda: asyncio.run(send())):
        with saying(greeting) as port:
            verdict = classify(raised(call))
        assert (verdict.kind, verdict.status) == (kind, status)


def test_a_grpc_server_away_and_a_code_that_it_gives() -> None:
    def call(port: int, timeout: float = 5) -> Exception:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            return raised(lambda: channel.unary_unary("/shop/Buy")(b"", timeout=timeout))

    def buy(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.set_trailing_metadata([("grpc-retry-pushback-ms", "1500")])
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "slower")
        return b""

    assert classify(call(nobody())).kind == "temporary"
    with ThreadPoolExecutor(2) as threads:
        made = grpc.server(threads)
        handler = grpc.method_handlers_generic_handler("shop", {"Buy": grpc.unary_unary_rpc_method_handler(buy)})
        made.add_generic_rpc_handlers([handler])
        port = made.add_insecure_port("127.0.0.1:0")
        made.start()
        verdict = classify(call(port))
        made.stop(None).wait()
    assert (verdict.kind, verdict.origin, verdict.asked) == ("throttled", "limits", 1.5)


def of_grpc(code: grpc.StatusCode) -> Exception:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details="")


@pytest.mark.parametrize("code", list(grpc.StatusCode))
def test_codes_of_grpc(code: grpc.StatusCode) -> None:
    kinds = {
        "UNAVAILABLE": "temporary",
        "DEADLINE_EXCEEDED": "temporary",
        "ABORTED": "temporary",
        "RESOURCE_EXHAUSTED": "throttled",
    }
    kinds |= dict.fromkeys(("OK", "CANCELLED", "UNKNOWN", "INTERNAL"), "unknown")
    assert classify(of_grpc(code)).kind == kinds.get(code.name, "logical")


def of_sqlalchemy(inner: BaseException, kind: Any = sa.exc.DBAPIError) -> Exception:
    made = kind.instance("select 1", None, inner, Exception) if kind is sa.exc.DBAPIError else kind("select 1", None, inner)
    assert isinstance(made, Exception)
    return made


def of_django(inner: BaseException, kind: Any) -> Exception:
    made = kind("said")
    made.__cause__ = inner
    assert isinstance(made, Exception)
    return made


def of_aws(code: str, status: int, **headers: str) -> Exception:
    about = {"HTTPStatusCode": status, "HTTPHeaders": headers}
    return aws.ClientError({"Error": {"Code": code}, "ResponseMetadata": about}, "PutObject")  # type: ignore[typeddict-item]


def of_sqlite(statement: str) -> Exception:
    base = sqlite3.connect(":memory:")
    base.execute("create table t (a integer unique not null)")
    error = raised(lambda: base.execute(statement))
    base.close()
    return error


def locked_sqlite(folder: Any) -> Exception:
    one, two = sqlite3.connect(folder / "db"), sqlite3.connect(folder / "db", timeout=0)
    one.execute("begin exclusive")
    error = raised(lambda: two.execute("create table t (a)"))
    one.close()
    two.close()
    return error


def test_a_busy_sqlite(tmp_path: Any) -> None:
    error = locked_sqlite(tmp_path)
    assert classify(error).kind == "temporary"
    assert classify(of_sqlalchemy(error, sa.exc.OperationalError)).kind == "temporary"


def certificate() -> ssl.SSLCertVerificationError:
    return ssl.SSLCertVerificationError(1, "certificate has expired")


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


KEY: Any = aiohttp.client_reqrep.ConnectionKey(
    "h", 1, is_ssl=False, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None
)
INFO = aiohttp.RequestInfo(URL("http://h/"), "GET", CIMultiDictProxy(CIMultiDict()), URL("http://h/"))
POOL: Any = None
MANY = [
    # Python
    (asyncio.TimeoutError(), "temporary", "external"), (socket.timeout(), "temporary", "external"),  # noqa: UP041  both old names
    (asyncio.IncompleteReadError(b"", 1), "temporary", "external"), (ssl.SSLError(), "temporary", "external"),
    (certificate(), "logical", "external"), (URLError(certificate()), "logical", "external"),
    (URLError(socket.gaierror(-3, "")), "temporary", "external"), (URLError(OSError(errno.ENETUNREACH, "")), "temporary", "external"),
    (raised(lambda: json.loads("<html>")), "logical", "validation"), (raised(lambda: orjson.loads("<")), "logical", "validation"),
    (of_sqlite("insert into t values (null)"), "logical", "validation"), (of_sqlite("select nonsense"), "logical", "code"),
    # httpx, requests, urllib3, aiohttp
    (httpx.ConnectTimeout(""), "temporary", "external"), (httpx.PoolTimeout(""), "temporary", "limits"),
    (httpx.ReadError(""), "temporary", "external"), (httpx.InvalidURL(""), "logical", "code"),
    (caused(httpx.ConnectError(""), certificate()), "logical", "external"), (httpx.TooManyRedirects(""), "logical", "external"),
    (httpx2.PoolTimeout(""), "temporary", "limits"), (caused(httpx2.ConnectError(""), certificate()), "logical", "external"),
    (requests.ConnectTimeout(), "temporary", "external"), (requests.exceptions.ChunkedEncodingError(), "temporary", "external"),
    (requests.exceptions.SSLError(certificate()), "logical", "external"), (requests.exceptions.SSLError(), "temporary", "external"),
    (requests.TooManyRedirects(), "logical", "external"), (requests.exceptions.RetryError(), "temporary", "external"),
    (requests.JSONDecodeError("", "", 0), "unknown", "external"), (requests.exceptions.MissingSchema(), "logical", "code"),
    (urllib3.exceptions.MaxRetryError(POOL, "", urllib3.exceptions.ResponseError()), "temporary", "external"),
    (urllib3.exceptions.MaxRetryError(POOL, "", urllib3.exceptions.SSLError(certificate())), "logical", "external"),
    (urllib3.exceptions.EmptyPoolError(POOL, ""), "temporary", "limits"), (urllib3.exceptions.LocationParseError(""), "logical", "code"),
    (aiohttp.ServerDisconnectedError(), "temporary", "external"), (aiohttp.ClientPayloadError(), "temporary", "external"),
    (aiohttp.ClientConnectorCertificateError(KEY, certificate()), "logical", "external"),
    (aiohttp.ClientConnectorError(KEY, ConnectionRefusedError()), "temporary", "external"),
    (aiohttp.ContentTypeError(INFO, (), status=200), "unknown", "external"), (aiohttp.InvalidURL("x"), "logical", "code"),
    # botocore
    (of_aws("ThrottlingException", 400), "throttled", "limits"), (of_aws("SlowDown", 503), "throttled", "limits"),
    (of_aws("ServiceUnavailable", 503), "temporary", "external"), (of_aws("Strange", 502), "temporary", "external"),
    (of_aws("Strange", 429, **{"retry-after": "3"}), "throttled", "limits"), (of_aws("NoSuchKey", 404), "logical", "external"),
    (of_aws("AccessDenied", 403), "logical", "external"), (of_aws("RequestTimeout", 400), "temporary", "external"),
    (aws.EndpointConnectionError(endpoint_url="x"), "temporary", "external"), (aws.NoCredentialsError(), "logical", "code"),
    (aws.ConnectTimeoutError(endpoint_url="x"), "temporary", "external"), (aws.ReadTimeoutError(endpoint_url="x"), "temporary", "external"),
    (aws.SSLError(endpoint_url="x", error=certificate()), "temporary", "external"),
    (aws.ParamValidationError(report="x"), "logical", "validation"), (aws.ConnectionClosedError(endpoint_url="x"), "temporary", "external"),
    # psycopg and asyncpg
    (pg.SerializationFailure(), "temporary", "external"), (pg.DeadlockDetected(), "temporary", "external"),
    (pg.LockNotAvailable(), "temporary", "external"), (pg.QueryCanceled(), "temporary", "external"),
    (pg.AdminShutdown(), "temporary", "external"), (pg.TooManyConnections(), "temporary", "limits"), (pg.DiskFull(), "temporary", "limits"),
    (pg.ReadOnlySqlTransaction(), "temporary", "external"), (pg.UniqueViolation(), "logical", "validation"),
    (pg.NumericValueOutOfRange(), "logical", "validation"), (pg.UndefinedTable(), "logical", "code"),
    (pg.InsufficientPrivilege(), "logical", "code"), (pg.InvalidPassword(), "logical", "external"),
    (pg.RaiseException(), "unknown", "external"), (pg.InFailedSqlTransaction(), "unknown", "external"),
    (psycopg.OperationalError("connection refused"), "temporary", "external"), (psycopg.ProgrammingError(), "logical", "code"),
    (psycopg_pool.PoolTimeout(), "temporary", "limits"), (psycopg_pool.PoolClosed(), "logical", "code"),
    (asyncpg.SerializationError(), "temporary", "external"), (asyncpg.DeadlockDetectedError(), "temporary", "external"),
    (asyncpg.TooManyConnectionsError(), "temporary", "limits"), (asyncpg.ConnectionDoesNotExistError(), "temporary", "external"),
    (asyncpg.CannotConnectNowError(), "temporary", "external"), (asyncpg.UniqueViolationError(), "logical", "validation"),
    (asyncpg.PostgresSyntaxError(), "logical", "code"), (asyncpg.InvalidPasswordError(), "logical", "external"),
    (asyncpg.InterfaceError(""), "unknown", "code"),
    # SQLAlchemy and Django
    (of_sqlalchemy(pg.DeadlockDetected(), sa.exc.OperationalError), "temporary", "external"),
    (of_sqlalchemy(pg.UniqueViolation(), sa.exc.IntegrityError), "logical", "validation"),
    (of_sqlalchemy(caused(RuntimeError(), asyncpg.SerializationError())), "temporary", "external"),
    (of_sqlalchemy(RuntimeError(), sa.exc.OperationalError), "temporary", "external"),
    (of_sqlalchemy(RuntimeError(), sa.exc.DataError), "logical", "validation"), (sa.exc.TimeoutError(), "temporary", "limits"),
    (sa.exc.NoResultFound(), "logical", "validation"), (sqlalchemy.orm.exc.StaleDataError(), "temporary", "external"),
    (sa.exc.ArgumentError(), "logical", "code"), (sa.exc.PendingRollbackError(), "unknown", "code"),
    (of_django(pg.SerializationFailure(), djdb.OperationalError), "temporary", "external"),
    (of_django(pg.UniqueViolation(), djdb.IntegrityError), "logical", "validation"),
    (djdb.OperationalError(), "temporary", "external"), (djdb.InterfaceError(), "temporary", "external"),
    (djdb.ProgrammingError(), "logical", "code"), (dj.ValidationError("x"), "logical", "validation"),
    (type("DoesNotExist", (dj.ObjectDoesNotExist,), {})(), "logical", "validation"), (dj.MultipleObjectsReturned(), "logical", "validation"),
    (dj.PermissionDenied(), "logical", "code"), (dj.ImproperlyConfigured(), "logical", "code"), (Http404(), "logical", "validation"),
    # redis, AMQP
    (red.ConnectionError(), "temporary", "external"), (red.TimeoutError(), "temporary", "external"),
    (red.BusyLoadingError(), "temporary", "external"), (red.ReadOnlyError(), "temporary", "external"),
    (red.MaxConnectionsError(), "temporary", "limits"), (red.OutOfMemoryError(), "temporary", "limits"),
    (red.AuthenticationError(), "logical", "external"), (red.NoPermissionError(), "logical", "external"),
    (red.ResponseError(), "logical", "code"), (red.DataError(), "logical", "validation"), (red.NoScriptError(), "unknown", "external"),
    (red.LockError(), "temporary", "external"), (red.LockNotOwnedError(), "unknown", "external"),
    (amqp.AMQPConnectionError(), "temporary", "external"), (amqp.ConnectionClosed(320, ""), "temporary", "external"),
    (amqp.ChannelInvalidStateError(), "temporary", "external"), (amqp.AuthenticationError(), "logical", "external"),
    (amqp.ChannelNotFoundEntity(""), "logical", "external"), (amqp.ChannelLockedResource(""), "temporary", "external"),
    (amqp.DuplicateConsumerTag(""), "logical", "code"),
    # mail
    (smtplib.SMTPServerDisconnected(), "temporary", "external"), (smtplib.SMTPDataError(451, b""), "temporary", "external"),
    (smtplib.SMTPDataError(554, b""), "logical", "external"), (smtplib.SMTPSenderRefused(550, b"", "a"), "logical", "external"),
    (smtplib.SMTPAuthenticationError(535, b""), "logical", "external"), (smtplib.SMTPAuthenticationError(454, b""), "temporary", "external"),
    (smtplib.SMTPRecipientsRefused({"a": (450, b""), "b": (451, b"")}), "temporary", "external"),
    (smtplib.SMTPRecipientsRefused({"a": (450, b""), "b": (550, b"")}), "logical", "external"),
    (smtplib.SMTPNotSupportedError(), "logical", "external"), (aiosmtplib.SMTPDataError(452, ""), "temporary", "external"),
    (aiosmtplib.SMTPDataError(552, ""), "logical", "external"), (aiosmtplib.SMTPServerDisconnected(""), "temporary", "external"),
    (aiosmtplib.SMTPConnectTimeoutError(""), "temporary", "external"), (aiosmtplib.SMTPNotSupported(""), "logical", "external"),
    (aiosmtplib.SMTPRecipientsRefused([aiosmtplib.SMTPRecipientRefused(450, "", "a")]), "temporary", "external"),
    (aiosmtplib.SMTPRecipientsRefused([aiosmtplib.SMTPRecipientRefused(550, "", "a")]), "logical", "external"),
    # pydantic
    (raised(lambda: pydantic.TypeAdapter(int).validate_python("x")), "logical", "validation"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "kind", "origin"), MANY, ids=lambda value: type(value).__qualname__ if isinstance(value, BaseException) else value
)
def test_what_libraries_raise(error: BaseException, kind: str, origin: str) -> None:
    verdict = classify(error)
    assert (verdict.kind, verdict.origin) == (kind, origin)


def test_there_are_many() -> None:
    assert len(MANY) >= 120

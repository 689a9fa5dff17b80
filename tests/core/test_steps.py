"""What an error says of the step that raised it, what a call is shown as, and what a function asks for."""

import smtplib
from functools import partial
from typing import Any
from uuid import UUID

import httpx
import pytest
import requests
import urllib3

from jobwell import Compensate, Reject, ResourceUnavailable, Retry, Snooze, StoreUnavailable
from jobwell.core import steps
from jobwell.core.error_rules import rules
from jobwell.core.step_errors import did_not_happen

REQUEST = httpx.Request("POST", "http://bank")
JOB = UUID(int=7)


def http(status: int, **headers: str) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("said", request=REQUEST, response=httpx.Response(status, headers=headers, request=REQUEST))


def raised(error: BaseException, cause: BaseException | None = None, *, inside: BaseException | None = None) -> BaseException:
    """The error as `raise … from cause`, or a plain `raise` in an except block, leaves it."""
    if inside is None:
        error.__cause__ = cause  # and the context is suppressed
    error.__context__ = inside or cause or TimeoutError()
    return error


def refused_connection() -> requests.ConnectionError:
    pool: Any = None
    inner = urllib3.exceptions.MaxRetryError(pool, "/", urllib3.exceptions.NewConnectionError(pool, "refused"))
    return requests.ConnectionError(inner)


class Declined(Exception):
    """Of a library that nobody knows."""


class Evil(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


@pytest.mark.parametrize(
    ("error", "certain"),
    [
        (Reject("closed"), True),
        (Snooze("1m"), True),
        (Compensate("full"), True),
        (Retry(), True),
        (raised(Retry(), TimeoutError()), False),
        (raised(Retry(), inside=TimeoutError()), False),
        (raised(Retry(), None), True),  # `from None`
        (raised(Retry(), inside=ConnectionRefusedError()), True),
        (raised(Reject("closed"), TimeoutError()), True),
        (ResourceUnavailable("open", resource="bank", retry_in=1), True),
        (StoreUnavailable("away"), True),
        (StoreUnavailable("away", unsure=True), False),
        (ConnectionRefusedError(), True),
        (ConnectionResetError(), False),
        (TimeoutError(), False),
        (httpx.ConnectError("no route"), True),
        (httpx.ConnectTimeout("slow"), True),
        (httpx.PoolTimeout("full"), True),
        (httpx.ReadTimeout("slow"), False),
        (httpx.RemoteProtocolError("gone"), False),
        (refused_connection(), True),
        (requests.ConnectTimeout(), True),
        (requests.ConnectionError(urllib3.exceptions.ProtocolError("aborted")), False),
        (requests.ReadTimeout(), False),
        *((http(status), True) for status in (400, 401, 403, 404, 410, 422, 425, 429, 501)),
        *((http(status), False) for status in (408, 409, 500, 502, 503, 504)),
        (http(503, **{"Retry-After": "5"}), True),
        (smtplib.SMTPServerDisconnected("gone"), False),
        (smtplib.SMTPDataError(451, b"later"), True),
        (smtplib.SMTPDataError(550, b"no"), True),
        (smtplib.SMTPRecipientsRefused({"a@b": (550, b"no")}), True),
        (KeyError("number"), False),
        (ValueError("no JSON"), False),
        (FileNotFoundError("gone"), False),
        (Declined(), False),
        (ExceptionGroup("several", [http(400), Reject("x")]), True),
        (ExceptionGroup("several", [http(400), TimeoutError()]), False),
        (KeyboardInterrupt(), False),
    ],
    ids=lambda given: "" if isinstance(given, bool) else type(given).__name__,
)
def test_what_an_error_says(error: BaseException, certain: bool) -> None:
    assert did_not_happen(error) is certain


def test_an_error_that_does_not_let_itself_be_looked_at_says_nothing() -> None:
    assert did_not_happen(Evil()) is False


@pytest.mark.parametrize(("kind", "certain"), [("logical", True), ("throttled", True), ("temporary", False), ("unknown", False)])
def test_what_the_task_says_of_an_error_counts(kind: str, certain: bool) -> None:
    assert did_not_happen(Declined(), rules({Declined: kind}, "")) is certain


def test_a_call_is_shown_without_what_it_might_give_away() -> None:
    class Client:
        def __repr__(self) -> str:
            return "token=secret"

        def pay(self, *_: Any, **__: Any) -> None:
            """Whatever."""

    def step(fn: Any, *args: Any, **kwargs: Any) -> steps.Step:
        return steps.declared(JOB, "pay", fn, args, kwargs, unknown="hold", compensate=None)

    shown = steps.called(step(Client().pay, 7, "KZ", Client(), {"token": "secret"}, on=None))
    assert shown.endswith("Client.pay(7, 'KZ', <Client>, <dict>, on=None)")
    assert "secret" not in shown
    assert len(steps.called(step(Client().pay, *["x" * 1000] * 9))) <= steps.LONGEST_CALL
    assert steps.called(step(partial(Client().pay, 3), 4)).endswith("Client.pay(4)")


def with_key(amount: int, idempotency_key: str) -> str:
    return idempotency_key


def rest(amount: int, **more: Any) -> dict[str, Any]:
    return more


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "given"),
    [
        (with_key, (1,), {}, f"{JOB}:pay"),
        (with_key, (1, "own"), {}, "own"),
        (with_key, (1,), {"idempotency_key": "own"}, "own"),
        (partial(with_key, 1), (), {}, f"{JOB}:pay"),
        (rest, (1,), {}, {}),
        (max, (1, 2), {}, 2),
    ],
)
def test_a_function_that_asks_for_the_key_gets_it(fn: Any, args: Any, kwargs: Any, given: Any) -> None:
    step = steps.declared(JOB, "pay", fn, args, kwargs, unknown="repeat", compensate=None)
    assert step.call(fn) == given

"""Which errors are temporary, logical or unknown."""

import errno
import re
import smtplib
import socket
import sqlite3
import sys
from dataclasses import replace
from http.client import RemoteDisconnected
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast
from urllib.error import HTTPError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell import App, DeclarationError, Retry, Tasks
from jobwell.core.classify import classify
from jobwell.core.error_rules import KINDS, rules


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), "temporary"), (ConnectionResetError(), "temporary"), (BrokenPipeError(), "temporary"),
        (socket.gaierror(), "temporary"), (RemoteDisconnected(), "temporary"), (FileNotFoundError(), "logical"),
        (UnicodeDecodeError("utf-8", b"", 0, 1, ""), "logical"), (NotImplementedError(), "logical"),
        (RuntimeError(), "unknown"), (OSError(), "unknown"), (MemoryError(), "unknown"), (NameError(), "logical"), (ValueError(), "unknown"), (KeyboardInterrupt(), "unknown"),
    ],
)  # fmt: skip
def test_errors_of_the_standard_library(error: BaseException, kind: str) -> None:
    assert classify(error).kind == kind


def test_a_subclass_is_what_its_nearest_named_ancestor_is() -> None:
    class Ours(PermissionError, ConnectionError):
        pass

    class Theirs(ConnectionError, PermissionError):
        pass

    assert classify(Ours()).kind == "logical"
    assert classify(Theirs()).kind == "temporary"


def test_a_class_of_the_same_name_elsewhere_is_not_meant() -> None:
    assert classify(type("TimeoutError", (Exception,), {})()).kind == "unknown"


@pytest.mark.parametrize(
    ("number", "kind", "origin"),
    [
        (errno.ENOSPC, "temporary", "limits"), (errno.EMFILE, "temporary", "limits"), (errno.EHOSTUNREACH, "temporary", "external"),
        (errno.ECONNRESET, "temporary", "external"), (errno.ENOENT, "logical", "code"), (errno.EACCES, "logical", "code"),
        (errno.EEXIST, "logical", "code"), (errno.EIO, "unknown", "code"),
    ],
)  # fmt: skip
def test_errors_of_the_system_by_their_number(number: int, kind: str, origin: str) -> None:
    verdict = classify(OSError(number, "said the system"))
    assert (verdict.kind, verdict.origin) == (kind, origin)


class Answered(Exception):
    def __init__(self, status: Any, headers: Any = None) -> None:
        self.response = SimpleNamespace(status_code=status, headers=headers)


@pytest.mark.parametrize(
    ("status", "asked", "kind"),
    [
        (408, None, "temporary"), (425, None, "temporary"), (429, None, "throttled"), (429, "7", "throttled"), (503, None, "temporary"),
        (503, "7", "throttled"), (500, None, "temporary"), (599, None, "temporary"), (501, None, "logical"), (505, None, "logical"),
        (400, None, "logical"), (404, None, "logical"), (409, "7", "logical"), (200, None, "unknown"), ("503", None, "unknown"),
        (True, None, "unknown"), (10**30, None, "unknown"),
    ],
)  # fmt: skip
def test_a_class_that_nobody_named_is_judged_by_its_response(status: Any, asked: str | None, kind: str) -> None:
    verdict = classify(Answered(status, {"Retry-After": asked} if asked else {}))
    assert verdict.kind == kind
    assert verdict.asked == (asked if kind != "unknown" else None)


def test_a_status_alone_may_mean_anything() -> None:
    error = RuntimeError()
    error.status = 404  # type: ignore[attr-defined]  no error has one by itself
    assert classify(error).kind == "unknown"


@pytest.mark.parametrize(
    ("leaves", "kind"),
    [
        ([TimeoutError(), ConnectionResetError()], "temporary"), ([TimeoutError(), FileNotFoundError()], "logical"),
        ([TimeoutError(), RuntimeError()], "unknown"), ([RuntimeError(), FileNotFoundError()], "logical"),
        ([TimeoutError(), Answered(429)], "throttled"), ([ExceptionGroup("", [TimeoutError()]), TimeoutError()], "temporary"),
        ([ExceptionGroup("", [NameError()]), TimeoutError()], "logical"),
    ],
)  # fmt: skip
def test_of_a_group_the_most_cautious_counts(leaves: list[Exception], kind: str) -> None:
    assert classify(ExceptionGroup("together", leaves)).kind == kind


def test_the_same_error_twice_in_a_group_is_one() -> None:
    error = TimeoutError()
    assert classify(ExceptionGroup("", [error, error])).kind == "temporary"


def test_what_a_group_says_about_itself_is_not_believed() -> None:
    class Liar(ExceptionGroup[Exception]):
        exceptions = ()  # type: ignore[assignment]

    assert classify(Liar("", [TimeoutError()])).kind == "temporary"


def chained(*errors: BaseException) -> BaseException:
    for outer, inner in pairwise(errors):
        outer.__cause__ = inner
    return errors[0]


def test_where_an_error_says_nothing_its_cause_does() -> None:
    assert classify(chained(RuntimeError(), ValueError(), TimeoutError())).kind == "temporary"
    assert classify(chained(FileNotFoundError(), TimeoutError())).kind == "logical"
    assert classify(chained(RuntimeError(), ExceptionGroup("", [NameError()]))).kind == "logical"


def test_causes_are_looked_through_so_far_only_and_may_go_in_a_ring() -> None:
    assert classify(chained(*(RuntimeError() for _ in range(8)), TimeoutError())).kind == "temporary"
    assert classify(chained(*(RuntimeError() for _ in range(9)), TimeoutError())).kind == "unknown"
    one, two = RuntimeError(), RuntimeError()
    assert classify(chained(one, two, one)).kind == "unknown"


def test_what_was_being_handled_is_no_cause() -> None:
    error = RuntimeError()
    error.__context__ = TimeoutError()
    assert classify(error).kind == "unknown"


def test_groups_in_causes_of_groups_end() -> None:
    error: Exception = RuntimeError()
    for _ in range(12):
        leaves = [RuntimeError() for _ in range(200)]
        for leaf in leaves:
            leaf.__cause__ = error
        error = ExceptionGroup("", leaves)
    assert classify(error).kind == "unknown"


def test_rules_go_before_the_table_and_the_tasks_before_the_apps() -> None:
    task = rules({ValueError: "temporary", "builtins.TimeoutError": "logical", 409: "temporary"}, "")
    app = rules({ValueError: "logical", KeyError: "throttled"}, "")
    assert classify(UnicodeError(), task).kind == "temporary"
    assert classify(ValueError(), (*task, *app)).kind == "temporary"
    assert classify(ValueError(), app).kind == "logical"
    assert classify(KeyError(), (*task, *app)).kind == "throttled"
    assert classify(TimeoutError(), task).kind == "logical"
    assert classify(Answered(409), task) == replace(classify(Answered(409)), kind="temporary", rule="HTTP 409")
    assert classify(Answered(404), task).kind == "logical"


def test_a_status_goes_before_a_class_and_the_nearest_class_before_others() -> None:
    ruled = rules({Answered: "unknown", 404: "throttled", LookupError: "logical", KeyError: "temporary"}, "")
    assert classify(Answered(404), ruled).kind == "throttled"
    assert classify(Answered(500), ruled).kind == "unknown"
    assert classify(KeyError(), ruled).kind == "temporary"
    assert classify(IndexError(), ruled).kind == "logical"


def test_a_rule_that_says_unknown_ends_the_search() -> None:
    assert classify(chained(RuntimeError(), TimeoutError()), rules({RuntimeError: "unknown"}, "")).kind == "unknown"
    assert classify(TimeoutError(), rules({TimeoutError: "unknown"}, "")).kind == "unknown"


def test_a_name_may_be_that_under_which_a_package_shows_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = type("Busy", (Exception,), {"__module__": "shop.sms._errors"})
    monkeypatch.setitem(sys.modules, "shop.sms", cast("Any", SimpleNamespace(Busy=busy)))
    ruled = rules({"shop.sms.Busy": "throttled"}, "")
    assert classify(busy(), ruled).kind == "throttled"
    assert classify(type("Busy", (Exception,), {"__module__": "shop.other"})(), ruled).kind == "unknown"


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ({ValueError: "temporal"}, "did you mean 'temporary'"), ({ValueError: None}, "must be one of"), ({"Busy": "temporary"}, "dotted name"),
        ({int: "temporary"}, "exception class"), ({200: "temporary"}, "from 300 to 599"), ({True: "temporary"}, "exception class"),
        ({Retry: "temporary"}, "no rule can change"), ([ValueError], "must be a mapping"), ({ValueError(): "temporary"}, "exception class"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_refused_where_it_is_declared(errors: Any, said: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(said)):
        App("postgresql://nowhere/none").task(name="shop.buy", errors=errors)(print_nothing)
    with pytest.raises(DeclarationError, match="App: errors"):
        App("postgresql://nowhere/none", errors=errors)


def print_nothing() -> None:
    """A task's function."""


def test_a_task_has_its_own_rules_and_then_those_of_its_app() -> None:
    group = Tasks()
    group.task(name="shop.buy", errors={ValueError: "temporary"})(print_nothing)
    app = App("postgresql://nowhere/none", errors={ValueError: "logical", KeyError: "logical"})
    app.include(group)
    app.task(name="shop.sell")(partial_of_nothing)
    assert classify(ValueError(), app.catalog["shop.buy"].errors).kind == "temporary"
    assert classify(KeyError(), app.catalog["shop.buy"].errors).kind == "logical"
    assert classify(ValueError(), app.catalog["shop.sell"].errors).kind == "logical"
    assert classify(KeyError(), group.catalog["shop.buy"].errors).kind == "unknown"


def partial_of_nothing() -> None:
    """Another one."""


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers()),
    st.dictionaries(st.text(), st.integers()), st.just(object()), st.just(ValueError()), st.just(lambda *_: 1 / 0),
)  # fmt: skip
CARRIED = (
    "response",
    "status",
    "code",
    "headers",
    "errno",
    "sqlstate",
    "smtp_code",
    "recipients",
    "orig",
    "reason",
    "trailing_metadata",
)
BASES = (
    OSError,
    HTTPError,
    smtplib.SMTPResponseException,
    smtplib.SMTPRecipientsRefused,
    sqlite3.OperationalError,
    Answered,
    RuntimeError,
)


@given(
    base=st.sampled_from(BASES), values=st.dictionaries(st.sampled_from(CARRIED), ANYTHING), raising=st.sets(st.sampled_from(CARRIED)),
    parts=st.dictionaries(st.sampled_from(["status_code", "status", "headers"]), ANYTHING), exits=st.booleans(),
)  # fmt: skip
def test_no_error_is_too_hostile(
    base: Any, values: dict[str, Any], raising: set[str], parts: dict[str, Any], exits: bool
) -> None:
    def refuse(_: object) -> None:
        raise SystemExit if exits else RuntimeError

    made = type("Hostile", (base,), {**values, "response": SimpleNamespace(**parts), **dict.fromkeys(raising, property(refuse))})
    verdict = classify(made.__new__(made))
    assert verdict.kind in KINDS
    assert verdict.status is None or type(verdict.status) is int
    assert verdict.asked is None or type(verdict.asked) in (str, float)


def test_nothing_in_it_can_be_read() -> None:
    class Hostile(OSError):
        def __getattribute__(self, name: str) -> Any:
            raise KeyboardInterrupt

    assert classify(Hostile(errno.ENOSPC, "")).kind == "unknown"

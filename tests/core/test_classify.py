"""Which errors are temporary, logical or unknown."""

import importlib
import socket
from http.client import RemoteDisconnected
from typing import Any

import pytest

from jobwell.core.classify import TABLE, classify


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), "temporary"), (ConnectionResetError(), "temporary"), (BrokenPipeError(), "temporary"),
        (socket.gaierror(), "temporary"), (RemoteDisconnected(), "temporary"), (FileNotFoundError(), "logical"),
        (UnicodeDecodeError("utf-8", b"", 0, 1, ""), "logical"), (NotImplementedError(), "logical"),
        (RuntimeError(), "unknown"), (OSError(), "unknown"), (ValueError(), "unknown"), (KeyboardInterrupt(), "unknown"),
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


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_name_in_the_table_is_a_real_class_that_matches_itself(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    cls: Any = getattr(importlib.import_module(module), attribute)
    assert issubclass(cls, BaseException)
    assert f"{cls.__module__}.{cls.__qualname__}" == name

"""The public face is small, sorted, documented and guarded: a new name is a decision, and is written down here."""

import inspect
from types import ModuleType

import jobwell
from tests.architecture.helpers import SRC

# fmt: off
NAMES = [
    "App", "Backoff", "BatchTooLarge", "Breaker", "CannotTell", "CheckpointMismatch", "Compensate", "Conflict", "Context", "DeclarationError", "Dedup", "Delays", "DidNotHappen", "Duplicate", "EnqueueError", "FailedJob",
    "Fixed", "Followed", "Group", "Happened", "InvalidArguments", "JobCancelled", "JobFailed", "JobwellError", "Limit", "Lock", "NewJob", "NotFound", "PayloadTooLarge",
    "Pool", "Pressure", "Progress", "Queue", "QueueFull", "Rate", "Reject", "ResourceUnavailable", "ResultError", "ResultExpired",
    "ResultMismatch", "ResultUnavailable", "Retries", "Retry", "SchemaMismatch", "SettingsError", "Snooze", "StoreError", "StoreUnavailable",
    "SyncContext", "Tasks", "Tier", "TransactionMisuse", "WaitTimeout",
]
# fmt: on


def test_the_names_are_these() -> None:
    assert set(jobwell.__all__) == set(NAMES), "a public name came or went: say so in CHANGELOG.md, and change the list here"


def test_the_names_are_sorted() -> None:
    assert list(jobwell.__all__) == sorted(jobwell.__all__)


def test_nothing_public_is_left_out() -> None:
    found = {name for name, value in vars(jobwell).items() if not name.startswith("_") and not isinstance(value, ModuleType)}
    assert found == set(jobwell.__all__)


def test_each_name_and_each_public_member_is_documented() -> None:
    bare = []
    for name in jobwell.__all__:
        value = getattr(jobwell, name)
        if not value.__doc__ or value.__doc__.startswith(f"{name}("):  # the second is a dataclass's own
            bare.append(name)
        for member, held in vars(value).items():
            public = not member.startswith("_") and (inspect.isfunction(held) or isinstance(held, property | classmethod))
            if public and not inspect.getdoc(held):
                bare.append(f"{name}.{member}")
    assert not bare, f"without a docstring: {', '.join(bare)}"


def test_the_package_says_that_it_is_typed() -> None:
    assert (SRC / "py.typed").is_file()

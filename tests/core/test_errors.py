"""Errors keep what they say on the way to another process."""

import copy
import pickle

import pytest

from jobwell import JobCancelled, JobFailed, ResultError, ResultExpired, ResultMismatch, ResultUnavailable, WaitTimeout
from jobwell.core.ids import new_id

JOB = new_id()
ERRORS = [
    ResultError("no"),
    JobFailed("it failed", job_id=JOB, task="t", reason="rejected", code="c", error_type="E", error_message="m", attempts=2),
    JobCancelled("it was cancelled", job_id=JOB, note=None),
    WaitTimeout("it goes on", job_id=JOB, state="running"),
    ResultExpired("it is gone"),
    ResultUnavailable("there is none", note="its result is not kept"),
    ResultMismatch("it does not fit", raw="7"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_copied_and_pickled_with_its_fields(error: ResultError) -> None:
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is type(error)
        assert str(other) == error.message == str(error)
        assert vars(other) == vars(error)

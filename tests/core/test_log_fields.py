"""The names of fields in a log line."""

import logging

from jobwell.core import log_fields
from jobwell.core.ids import new_id


def test_a_name_that_is_taken_is_told_as_carried() -> None:
    assert log_fields.safe({"request_id": "r", "name": "n", "event": "e", "job": "j"}) == {
        "request_id": "r", "carried_name": "n", "carried_event": "e", "carried_job": "j",
    }  # fmt: skip


def test_any_standard_record_takes_the_fields() -> None:
    fields = log_fields.of_job(new_id(), task="t", attempt=1, queue="q", tenant="", carried=dict.fromkeys(log_fields.TAKEN, 1))
    record = logging.getLogger("x").makeRecord("x", logging.INFO, "file", 1, "message", (), None, extra=fields)
    assert record.getMessage() == "message"
    assert vars(record)["task"] == "t"

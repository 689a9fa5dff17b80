"""What a job that followed others is told, and what may be followed."""

from typing import Any
from uuid import UUID

import pytest

from jobwell import EnqueueError, Followed
from jobwell.client.handle import Enqueued, Group, Handle, ids_of
from jobwell.core.follow import MOST, check_when
from jobwell.core.ids import new_id
from jobwell.core.log_fields import safe

NOBODY: Any = None


@pytest.mark.parametrize("meta", [None, "{}", '{"request_id":"r1"}', '{"note":"$followed"}'])
def test_who_followed_nothing_is_told_of_nothing(meta: str | None) -> None:
    assert Followed.read(meta) == Followed()
    assert Followed.read(meta).total == 0


def test_what_is_told_is_read() -> None:
    told = Followed.read(f'{{"$followed":{{"ids":["{UUID(int=7)}"],"failed":2,"succeeded":3,"cancelled":1}}}}')
    assert (told, told.total) == (Followed((UUID(int=7),), 3, 2, 1), 6)


def test_what_is_told_stands_in_no_log_line() -> None:
    assert safe({"$followed": {}, "request_id": "r1"}) == {"request_id": "r1"}


def test_each_job_is_followed_once() -> None:
    one, two, three = (new_id() for _ in range(3))
    handle: Handle[Any] = Handle(one, "note", created=True, _client=NOBODY)
    many = Enqueued(two.bytes + one.bytes)
    behind: Handle[Any] = Handle(three, "note", created=True, _client=NOBODY)
    assert ids_of((handle, one, many, Group(many, behind))) == (one, two, three)


def test_as_many_as_may_and_no_more() -> None:
    assert len(ids_of(tuple(new_id() for _ in range(MOST)))) == MOST
    with pytest.raises(EnqueueError, match="10,001 jobs"):
        ids_of(tuple(new_id() for _ in range(MOST + 1)))


def test_only_the_two_conditions() -> None:
    check_when("succeeded")
    check_when("ended")
    with pytest.raises(EnqueueError, match="give 'succeeded', or 'ended'"):
        check_when("failed")

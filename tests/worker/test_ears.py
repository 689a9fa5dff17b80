"""The mode of wake-ups is what was proved last, and a change is said once."""

import logging
from collections.abc import Callable

import pytest

from jobwell.core.ids import new_id
from jobwell.store.statements import Statements
from jobwell.worker.ears import HEARD_WITHIN, PROVE_EVERY, TRY_AGAIN, Ears


class Room:
    """Ears, a clock moved by hand, and what was asked for."""

    def __init__(self) -> None:
        self.now = 100.0
        self.asked: list[tuple[str, Callable[[], None]]] = []
        self.ears = Ears(lambda text, sent: self.asked.append((text, sent)), 0.25, lambda: self.now)

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.ears.look()


@pytest.fixture
def room(caplog: pytest.LogCaptureFixture) -> Room:
    caplog.set_level(logging.INFO, "jobwell.worker")
    return Room()


def test_it_is_polling_until_it_has_heard_itself(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    room.ears.begin()
    [(text, sent)] = room.asked
    sent()
    assert room.ears.mode == "poll"
    room.ears.heard("somebody else's")
    assert room.ears.mode == "poll"
    room.ears.heard(text)
    assert room.ears.mode == "notify"
    assert [record.getMessage() for record in caplog.records] == ["wake-ups: notify"]


def test_what_does_not_come_back_within_a_second_of_the_commit_is_said_once(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    room.ears.begin()
    for _ in range(3):
        room.asked[-1][1]()
        room.after(HEARD_WITHIN + 0.1)
        assert room.ears.mode == "poll"
        room.after(TRY_AGAIN)
    assert len(room.asked) == 4
    [said] = [record.getMessage() for record in caplog.records]
    assert "did not come back" in said
    assert "direct_url" in said
    room.asked[-1][1]()
    room.ears.heard(room.asked[-1][0])
    assert room.ears.mode == "notify"


def test_what_could_not_be_sent_is_no_verdict(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    """The loop is blocked, or the store is away."""
    room.ears.begin()
    room.asked[0][1]()
    room.ears.heard(room.asked[0][0])
    room.after(PROVE_EVERY)
    assert len(room.asked) == 2
    room.after(HEARD_WITHIN + 1)
    assert room.ears.mode == "notify"
    room.after(TRY_AGAIN)
    assert len(room.asked) == 3
    room.asked[1][1]()  # the first one, at last: it counts no more
    room.after(HEARD_WITHIN + 0.1)
    assert room.ears.mode == "notify"
    assert [record.getMessage() for record in caplog.records] == ["wake-ups: notify"]


def test_a_lost_connection_is_polling_and_the_next_one_must_prove_itself(room: Room) -> None:
    room.ears.begin()
    room.asked[0][1]()
    room.ears.heard(room.asked[0][0])
    room.ears.end()
    assert room.ears.mode == "poll"
    room.after(2 * PROVE_EVERY)
    assert len(room.asked) == 1, "nobody listens"
    room.ears.begin()
    room.ears.heard(room.asked[0][0])
    assert room.ears.mode == "poll", "an old one proves nothing"
    room.ears.heard(room.asked[1][0])
    assert room.ears.mode == "notify"


def test_the_longest_schema_leaves_room_for_the_channels() -> None:
    """PostgreSQL refuses longer names in pg_notify, and cuts them in LISTEN."""
    statements = Statements("a" * 40)
    assert max(len(statements.channel), len(statements.channel_of(new_id()))) <= 63

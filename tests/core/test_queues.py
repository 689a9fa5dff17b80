"""Limits of queues: what may be declared, what an operator writes, which of the two holds."""

import pytest

from jobwell import App, DeclarationError, Pressure, Queue, SettingsError
from jobwell.core.queues import bounded, read


@pytest.mark.parametrize(("text", "soft", "hard"), [
    ("bulk=50000/200000", 50_000, 200_000), (" bulk = 50_000 / ", 50_000, None), ("bulk=/7", None, 7), ("bulk=none", None, None),
])  # fmt: skip
def test_a_limit_as_an_operator_writes_it(text: str, soft: int | None, hard: int | None) -> None:
    assert read(text) == Queue("bulk", soft=soft, hard=hard)


@pytest.mark.parametrize("text", ["bulk", "bulk=7", "bulk=a/b", "=1/2", "bulk=1/2/3", "bulk=-1/2"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(DeclarationError, match="is not like 'bulk=50000/200000'"):
        read(text)


@pytest.mark.parametrize(("limit", "said"), [
    ({"hard": 0}, "hard=0 must be a whole number from 1"), ({"soft": True}, "soft=True must be"), ({"hard": 10**8}, "must be"),
    ({"soft": 8, "hard": 7}, "soft=8 is above hard=7"), ({"hard": 1.5}, "hard=1.5 must be"),
])  # fmt: skip
def test_a_limit_that_makes_no_sense_is_refused(limit: dict[str, int], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        Queue("bulk", **limit)


def test_operators_go_before_the_code_and_may_take_a_limit_away() -> None:
    code = [Queue("bulk", soft=1, hard=2), Queue("mail", hard=5), Queue("plain"), "other"]
    assert bounded(code) == {"bulk": Queue("bulk", soft=1, hard=2), "mail": Queue("mail", hard=5)}
    assert bounded(code, ["bulk=/9", "mail=none"]) == {"bulk": Queue("bulk", hard=9)}
    with pytest.raises(DeclarationError, match="declared twice"):
        bounded([Queue("bulk", hard=1), Queue("bulk", hard=2)])


def test_an_app_takes_queues_beside_names(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(queues=(Queue("bulk", hard=7), "mail", Queue("import", soft=3)))
    assert app.queues == ("critical", "notifications", "default", "bulk", "reports", "mail", "import")
    assert dict(app.bounded_queues) == {"bulk": Queue("bulk", hard=7), "import": Queue("import", soft=3)}
    assert App(queues=Queue("one", hard=1)).bounded_queues["one"].hard == 1
    monkeypatch.setenv("JOBWELL_QUEUE_LENGTHS", "bulk=5/6, import=none")
    assert dict(App(queues=(Queue("bulk", hard=7), Queue("import", soft=3))).bounded_queues) == {
        "bulk": Queue("bulk", soft=5, hard=6)
    }
    with pytest.raises(SettingsError, match="declares no queue 'import'"):
        App(queue_lengths=["import=1/2"])
    with pytest.raises(SettingsError, match="queue_lengths: 'x' is not like"):
        App(queue_lengths=["x"])


@pytest.mark.parametrize(("length", "ratio", "soft_full", "full"), [
    (0, 0.0, False, False), (5, 0.5, True, False), (10, 1.0, True, True), (12, 1.2, True, True),
])  # fmt: skip
def test_what_pressure_tells(length: int, ratio: float, soft_full: bool, full: bool) -> None:
    found = Pressure("bulk", length, 5, 10)
    assert (found.ratio, found.soft_full, found.full) == (ratio, soft_full, full)
    assert Pressure("bulk", length, 5, None).ratio == length / 5
    assert not Pressure("bulk", length, None, 100).soft_full

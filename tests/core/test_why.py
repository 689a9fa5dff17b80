"""Each reason why a job does not run, and that the sentence says what to do."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from jobwell.core.why import CAP, Awaited, Facts, Held, Limited, explain

NOW = datetime(2030, 1, 31, 12, 0, tzinfo=UTC)
JOB, OTHER = UUID(int=1), UUID(int=2)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


FREE = Facts(
    now=NOW, id=JOB, state="ready", task="note", queue="bulk", lock_key="", attempt=0, run_at=ago(60), ready_at=ago(60), started_at=None,
    deadline=ago(-3600), ended_at=None, reason=None, said=None, pause=None, paused_at=None, paused_by=None, paused_why=None,
    paused_until=None, holder=None, holder_started_at=None, live=2, serving=2, knowing=2, slots=10, busy=3, worker=None,
    worker_there=None, above=0, older=0, error_type=None, error=None, cancel_at=None, cancel_by=None)  # fmt: skip
LIMIT = Limited("resource", "sms", "fleet", 5, (), 5, 0.0, (JOB, OTHER))
PAUSED = {"pause": "bulk", "paused_at": ago(600), "paused_by": "olga", "paused_why": "month end"}


def codes(**changed: Any) -> list[str]:
    return [because.code for because in explain(dataclasses.replace(FREE, **changed))]


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({}, "next", ("1m", "next free slot")),
        ({"state": "scheduled", "ready_at": None, "run_at": ago(-90)}, "not_due", ("1m30s", "12:01:30 UTC")),
        ({"state": "scheduled", "ready_at": None, "run_at": ago(4)}, "due", ("made ready",)),
        ({"state": "retrying", "run_at": ago(-30), "attempt": 3, "error_type": "ValueError", "error": "no"}, "retrying", ("30s", "ValueError no", "3 time(s)")),
        ({"state": "waiting", "awaited": (Awaited(OTHER, "running", "build"),), "awaits": 1}, "follows", (f"{OTHER} (build), which is running", "jobs why")),
        ({"state": "waiting", "awaited": (Awaited(OTHER, "failed", None),), "awaits": 1}, "follows_failed", (f"jobwell quarantine retry {OTHER}", "this one is cancelled")),
        ({"state": "waiting"}, "follows", ("being released",)),
        (PAUSED, "paused", ("'bulk'", "olga", "10m", "month end", "jobwell queues resume bulk")),
        (PAUSED | {"pause": "*", "paused_until": ago(-60)}, "paused", ("All queues", "by itself at 2030-01-31 12:01:00 UTC", "resume '*'")),
        ({"live": 0, "serving": 0, "knowing": 0}, "no_worker", ("jobwell worker module:app",)),
        ({"serving": 0, "knowing": 0}, "queue_unserved", ("2 live", "--queues bulk")),
        ({"knowing": 0}, "task_unknown", ("'note'", "deploy")),
        ({"holder": OTHER, "holder_started_at": ago(5), "lock_key": "note:7"}, "lock_held", (str(OTHER), "5s", "note:7")),
        ({"busy": 10}, "slots_busy", ("All 10 slot(s)", "2 worker(s)")),
        ({"busy": 10, "pooled": 2}, "slots_busy", ("All 10 slot(s) in the pools of the queue 'bulk'",)),
        ({"slots": 0, "busy": 0, "fitting": 0, "pooled": 2}, "slots_none", ("no slots in the pools of the queue 'bulk'", "the time table")),
        ({"busy": 8, "cost": 4, "fitting": 0}, "slots_busy", ("It takes 4 slots", "they are gathered")),
        ({"heavy": True, "held": 2, "held_why": "the memory in use, 91%, is above memory_high=80%"}, "memory_high", ("None of the 2 worker(s)", "91%")),
        ({"heavy": True, "held": 1, "held_why": "the memory"}, "next", ()),
        ({"held": 2, "held_why": "the memory"}, "next", ()),
        ({"apart": True, "children": 2, "children_busy": 2, "busy": 10}, "children_busy", ("all 2 child(ren)", "`children` higher")),
        ({"above": 12, "older": CAP}, "behind", ("12 job(s) of higher priority", "10,000+ older", "too few of them")),
        ({"above": 12, "older": 9, "pace_above": 2.0}, "behind", ("too few of them",)),
        ({"above": 12, "older": 9, "pace_above": 2.0, "pace_lane": 0.1}, "behind", ("that takes 1m36s",)),
        ({"older": CAP, "pace_above": 2.0, "pace_lane": 100.0}, "behind", ("that takes at least 1m40s",)),
        ({"holds": (Held("task", "note", ago(60), "olga", "bad data", ago(-60)),)}, "task_held", ("'note' is held by olga, for 1m because: bad data", "by itself at 2030-01-31 12:01:00 UTC", "`jobwell resume task note`")),
        ({"holds": (Held("tenant", "acme", ago(60), "olga", None, None),)}, "tenant_held", ("held by olga, for 1m. `jobwell resume tenant acme`",)),
        ({"limits": (LIMIT,)}, "limit_full", ("resource 'sms' is in use, 5 of 5", f"by {JOB}, {OTHER}, …;", "`jobwell limits show resource:sms`")),
        ({"tenant": "acme", "limits": (Limited("tenant", "*", "fleet", 2, (), 2, 0.0, (JOB, OTHER)),)}, "limit_full", ("limit of each tenant is in use", f"2 of 2 by {JOB}, {OTHER};", "limits show tenant:acme`")),
        ({"limits": (Limited("task", "note", "host", 1, (), 1, 0.0, ()),)}, "limit_full", ("per host where there is most room", "1 of 1;")),
        ({"limits": (Limited("queue", "bulk", "fleet", 0, (), 0, 0.0, ()),)}, "limit_zero", ("queue 'bulk' is 0",)),
        ({"limits": (Limited("resource", "sms", "fleet", 5, ("10/s", "60/min"), 1, 30.0, (JOB,)),)}, "rate", ("(10/s, 60/min)", "in 30s, at 2030-01-31 12:00:30 UTC")),
        ({"lock_key": "note:7", "before": OTHER, "before_state": "retrying"}, "lock_order", (str(OTHER), "retrying")),
        ({"lock_key": "note:7", "key_wait": 30.0}, "lock_rate", ("note:7", "in 30s, at 2030-01-31 12:00:30 UTC")),
        ({"holder": OTHER, "holder_started_at": ago(5), "lock_key": "note:7", "skips": True}, "lock_held", ("dropped",)),
        ({"deadline": ago(10)}, "deadline_passed", ("10s ago", "quarantine")),
        ({"state": "running", "worker": "h/1", "worker_there": True, "started_at": ago(30), "attempt": 2}, "running", ("attempt 2", "h/1", "30s")),
        ({"state": "running", "worker": None, "worker_there": None, "started_at": ago(30)}, "worker_gone", ("takes it back",)),
        ({"state": "succeeded", "ended_at": ago(30)}, "succeeded", ("30s ago",)),
        ({"state": "cancelled", "ended_at": ago(30), "said": "olga: a mistake"}, "cancelled", ("a mistake",)),
        ({"state": "failed", "ended_at": ago(30), "reason": "exhausted", "said": "ValueError: x"}, "failed_exhausted", ("ValueError: x", f"jobwell quarantine retry {JOB}")),
        ({"state": "failed", "ended_at": ago(30), "said": "resolved"}, "failed", ("settled",)),
    ],
)  # fmt: skip
def test_one_thing_in_the_way(changed: dict[str, Any], code: str, words: tuple[str, ...]) -> None:
    (because,) = explain(dataclasses.replace(FREE, **changed))
    assert because.code == code
    for word in words:
        assert word in because.sentence
    assert because.sentence.endswith(".") or because.sentence.endswith("`")


def test_several_things_are_all_said_the_hardest_first() -> None:
    assert codes(**PAUSED, live=0, serving=0, knowing=0, slots=0, busy=0, holder=OTHER, above=1) == [
        "paused", "no_worker", "lock_held", "behind"]  # fmt: skip
    hold = Held("task", "note", ago(60), "olga", None, None)
    assert codes(holds=(hold,), state="retrying", run_at=ago(-60)) == ["retrying", "task_held"]
    assert codes(holds=(hold,), live=0, limits=(LIMIT, dataclasses.replace(LIMIT, wait=1.0)), busy=10) == [
        "task_held", "no_worker", "limit_full", "limit_full", "rate", "slots_busy"]  # fmt: skip
    assert codes(state="scheduled", run_at=ago(-60), ready_at=None, live=0, serving=0, knowing=0) == ["not_due", "no_worker"]
    assert codes(state="running", worker="h/1", worker_there=True, cancel_at=ago(3), cancel_by="olga") == [
        "cancelling",
        "running",
    ]


def test_no_slots_are_not_said_where_nobody_knows_the_task() -> None:
    assert codes(knowing=0, slots=0, busy=0) == ["task_unknown"]


def test_a_job_that_has_just_become_ready_raises_no_alarm() -> None:
    (because,) = explain(dataclasses.replace(FREE, ready_at=ago(0.2)))
    assert "logs" not in because.sentence

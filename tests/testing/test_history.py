"""The history checker by made-up histories: a good one passes, and each rule catches a history that breaks it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from jobwell.store.history import Tables
from jobwell.testing.evidence import Cancel, Ended, History, Hold, Mark, Put, Stored, read
from jobwell.testing.history import KINDS, Verdict, check

JOB, OTHER = UUID(int=1), UUID(int=2)
WORKER, SECOND = UUID(int=10), UUID(int=11)
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def succeeded(job: UUID = JOB, *, attempt: int = 1, began: float = 0, ended: float = 10, **other: Any) -> Stored:
    return Stored(job, "finished", "succeeded", attempt, other.pop("failures", 0), None, None, None, other.pop("worker", WORKER),
                  at(began), at(ended), "default")  # fmt: skip


def failed(reason: str, *, attempt: int = 1, failures: int = 0, crashes: int = 0, losses: int = 0, postponed: int = 0) -> Stored:
    return Stored(
        JOB, "quarantine", "failed", attempt, failures, crashes, losses, postponed, WORKER, at(0), at(10), "default", reason
    )


def cancelled(*, attempt: int = 0, ended: float = 10) -> Stored:
    return Stored(JOB, "finished", "cancelled", attempt, 0, None, None, None, None, None, at(ended), "default")


def end(outcome: str, *, attempt: int = 1, began: float = 0, ended: float = 10, worker: UUID = WORKER, job: UUID = JOB) -> Ended:
    return Ended(job, attempt, outcome, worker, UUID(int=int(began * 1000) + job.int * 10**9 + 5), at(began), at(ended))


def call(*, job: UUID = JOB, attempt: int = 1, worker: UUID = WORKER, executor: str = "async", **times: float) -> list[Mark]:
    number = UUID(int=hash((job, attempt, worker, *times.items())) % 2**100)
    return [Mark(number, job, attempt, worker, executor, what, at(when)) for what, when in times.items()]


DONE = call(begin=1, effect=8, end=9)
GOOD = History(puts=[Put(JOB, "committed")], stored=[succeeded()], marks=DONE)
# Lost on one worker, which went on as a zombie; failed, snoozed and handed back on another; then done.
LONG = History(
    puts=[Put(JOB, "committed")],
    stored=[succeeded(attempt=3, failures=1, began=50, ended=60)],
    ended=[
        end("lost", worker=SECOND),
        end("retrying", attempt=2, began=20, ended=21),
        end("snoozed", attempt=3, began=30, ended=31),
        end("released", attempt=3, began=40, ended=41),
        end("succeeded", attempt=3, began=50, ended=60),
    ],
    marks=[
        *call(worker=SECOND, begin=1, effect=55, end=56),
        *call(attempt=2, begin=20.1),
        *call(attempt=3, begin=50.1, effect=59),
    ],
)


def found(history: History) -> list[tuple[str, str]]:
    verdict = check(history)
    assert verdict.ok == (not verdict.findings)
    assert sum(verdict.count(kind) for kind in KINDS) > 0 or verdict.ok
    return [(finding.kind, finding.what) for finding in verdict.findings]


@pytest.mark.parametrize(
    "history",
    [
        History(),
        GOOD,
        LONG,
        replace(GOOD, puts=[Put(JOB, "unknown")]),
        History(puts=[Put(JOB, "unknown"), Put(OTHER, "rolled back")]),
        replace(GOOD, stored=[failed("rejected", failures=1)], ended=[end("failed")]),
        replace(GOOD, stored=[failed("deadline")], ended=[end("failed")]),
        replace(GOOD, stored=[failed("crashed", crashes=1)], ended=[end("crashed")], marks=call(begin=1)),
        replace(GOOD, stored=[failed("lost", losses=1)], ended=[end("lost")], marks=call(begin=1, effect=30)),
        replace(GOOD, stored=[cancelled(attempt=1)], ended=[end("cancelled")], cancels=[Cancel(JOB, at(2))], marks=call(begin=1)),
        replace(GOOD, stored=[cancelled()], cancels=[Cancel(JOB, at(10))], marks=[]),
        replace(GOOD, cancels=[Cancel(JOB, at(5))]),  # asked while it ran, and it came to its end
        replace(GOOD, holds=[Hold("default", at(-5), at(0)), Hold("bulk", at(-5), None), Hold("*", at(0.5), at(5))]),
        # A plain function on a thread cannot be stopped.
        replace(LONG, marks=[*LONG.marks, *call(attempt=3, executor="thread", begin=40.1, effect=45)]),
    ],
)  # fmt: skip
def test_a_history_that_kept_every_promise_passes(history: History) -> None:
    assert found(history) == []


def test_what_is_excused_is_counted() -> None:
    verdict: Verdict = check(LONG)
    assert (verdict.jobs, verdict.calls, verdict.zombies) == (1, 3, 1)
    assert verdict.outcomes == {"lost": 1, "retrying": 1, "snoozed": 1, "released": 1, "succeeded": 1}


def log(change: Callable[[list[Ended]], object], history: History = LONG) -> History:
    ended = list(history.ended)
    change(ended)
    return replace(history, ended=ended)


BROKEN: dict[str, tuple[History, str, str]] = {
    "a committed job is nowhere": (replace(GOOD, stored=[], marks=[]), "lost", "nowhere"),
    "one of unknown fate ran and is nowhere": (replace(GOOD, puts=[Put(JOB, "unknown")], stored=[]), "lost", "nowhere"),
    "a job never ends": (
        replace(GOOD, stored=[Stored(JOB, "jobs", "ready", 0, 0, 0, 0, 0, None, None, None, "default")], marks=[]),
        "lost", "has not come to an end: it is ready",
    ),
    "a success has done nothing": (replace(GOOD, marks=call(begin=1)), "lost", "it had done nothing"),
    "a success stands on the work of a zombie": (
        replace(LONG, marks=call(worker=SECOND, begin=1, effect=55)), "lost", "it had done nothing",
    ),
    "a job stands in two places": (
        replace(GOOD, stored=[succeeded(), cancelled(attempt=1)]), "double_finished", "more than one place",
    ),
    "a job finished twice": (replace(GOOD, stored=[succeeded(), succeeded(ended=11)]), "double_finished", "more than one place"),
    "a claim has two outcomes": (log(lambda rows: rows.append(rows[1])), "double_finished", "has 2 outcomes"),
    "it ended more than once": (
        log(lambda rows: rows.append(end("failed", attempt=4, began=70, ended=71))), "double_finished", "ended more than once",
    ),
    "an attempt came after the end": (
        log(lambda rows: rows.append(end("lost", attempt=4, began=70, ended=71))), "double_finished", "came after it had ended",
    ),
    "a rolled-back enqueue ran": (replace(GOOD, puts=[Put(JOB, "rolled back")]), "unexplained", "rolled back"),
    "a job that nobody enqueued": (replace(GOOD, puts=[]), "unexplained", "nobody has enqueued it"),
    "an effect without an attempt": (
        replace(GOOD, marks=[*DONE, *call(worker=SECOND, begin=3, effect=4)]), "unexplained", "ran without a claim",
    ),
    "a call before its claim": (replace(GOOD, marks=call(begin=-1, effect=8)), "unexplained", "ran without a claim"),
    "marks without a beginning": (replace(GOOD, marks=[*DONE, *call(effect=7)]), "unexplained", "never began"),
    "a call that went on after its outcome": (replace(GOOD, marks=call(begin=1, effect=11)), "unexplained", "went on until"),
    "a child that outlived its crash": (
        replace(GOOD, stored=[failed("crashed", crashes=1)], ended=[end("crashed")], marks=call(begin=1, effect=12, executor="process")),
        "unexplained", "went on until",
    ),
    "a thread that outlived its success": (
        replace(GOOD, marks=call(begin=1, effect=8, end=11, executor="thread")), "unexplained", "went on until",
    ),
    "one claim ran twice": (
        replace(GOOD, marks=[*DONE, *call(begin=2, effect=3)]), "overlapping", "one claim and ran 2 times",
    ),
    "two attempts at once": (
        log(lambda rows: rows.__setitem__(1, end("retrying", attempt=2, began=9, ended=21))), "overlapping", "was claimed before",
    ),
    "a key was held twice": (
        History(
            puts=[Put(JOB, "committed", "k"), Put(OTHER, "committed", "k")],
            stored=[succeeded(), succeeded(OTHER, began=9, ended=12)],
            marks=[*DONE, *call(job=OTHER, begin=9.5, effect=11)],
        ),
        "overlapping", "which held the key 'k'",
    ),
    "an unknown outcome": (
        log(lambda rows: rows.__setitem__(1, replace(rows[1], outcome="vanished"))), "unexplained", "unknown outcome 'vanished'",
    ),
    "an outcome without a claim": (
        log(lambda rows: rows.__setitem__(1, replace(rows[1], claim=None))), "unexplained", "logged without a claim",
    ),
    "a start without an outcome": (log(lambda rows: rows.pop(1)), "unexplained", "outcomes explain 2"),
    "numbers out of order": (
        log(lambda rows: rows.__setitem__(0, replace(rows[0], attempt=2))), "unexplained", "should have the number 1",
    ),
    "a later success that is not in the log": (log(lambda rows: rows.pop()), "unexplained", "and is not in the log"),
    "a quarantine without its failure": (
        replace(GOOD, stored=[failed("exhausted", failures=1)], ended=[end("retrying")]), "unexplained", "its last attempt was retrying",
    ),
    "failures are miscounted": (replace(GOOD, stored=[succeeded(failures=1)]), "unexplained", "failures is 1"),
    "crashes are miscounted": (
        replace(GOOD, stored=[failed("crashed", crashes=2)], ended=[end("crashed")]), "unexplained", "crashes is 2",
    ),
    "losses are miscounted": (
        replace(GOOD, stored=[failed("lost", losses=0)], ended=[end("lost")]), "unexplained", "losses is 0",
    ),
    "postponements are miscounted": (
        replace(GOOD, stored=[failed("rejected", failures=1, postponed=1)], ended=[end("failed")]), "unexplained", "postponements is 1",
    ),
    "sums do not fit": (replace(GOOD, sums={("finished", "succeeded"): 2}), "unexplained", "2 jobs are counted as succeeded"),
    "it ran after it was stored as cancelled": (
        replace(GOOD, stored=[cancelled(attempt=1, ended=5)], ended=[end("lost", began=6, ended=7)], marks=[]),
        "unexplained", "after the job was stored as cancelled",
    ),
    "it was claimed again after a cancel": (replace(LONG, cancels=[Cancel(JOB, at(25))]), "unexplained", "somebody had cancelled"),
    "a cancel of a waiting job had no effect": (replace(GOOD, cancels=[Cancel(JOB, at(-3))]), "unexplained", "while it waited"),
    "a cancel stayed behind": (replace(GOOD, asked=frozenset([JOB])), "unexplained", "has stayed behind"),
    "a held queue": (replace(GOOD, holds=[Hold("default", at(-5), at(2))]), "unexplained", "while the queue default was held"),
    "all queues were held": (replace(GOOD, holds=[Hold("*", at(-5), None)]), "unexplained", "while the queue * was held"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_promise_is_found(name: str) -> None:
    history, kind, words = BROKEN[name]
    assert any(kind == given and words in what for given, what in found(history)), found(history)


def test_a_verdict_counts_jobs_and_not_findings() -> None:
    verdict = check(replace(GOOD, stored=[succeeded(), cancelled(attempt=1), cancelled(attempt=1)]))
    assert verdict.count("double_finished") == 1
    assert not verdict.ok


def test_cancels_and_holds_are_read_from_the_audit() -> None:
    until = at(60).isoformat()
    actions = [
        (at(1), "queues.pause", "bulk, default", '{"why": null, "until": null}'),
        (at(2), "queues.pause", "reports", f'{{"until": "{until}"}}'),
        (at(3), "jobs.cancel", "2 jobs", f'{{"ids": ["{JOB}", "{OTHER}"]}}'),
        (at(4), "queues.resume", "bulk", None),
        (at(5), "queues.pause", "default", "{}"),
        (at(90), "queues.resume", "reports", None),
    ]
    history = read(Tables([], [], [("jobs", "ready", 3)], actions, [(JOB,)]), puts=[], marks=[])
    assert history.cancels == [Cancel(JOB, at(3)), Cancel(OTHER, at(3))]
    assert history.holds == [
        Hold("bulk", at(1), at(4)), Hold("default", at(1), at(5)), Hold("reports", at(2), at(60)), Hold("default", at(5), None),
    ]  # fmt: skip
    assert history.asked == {JOB}
    assert history.sums == {("jobs", "ready"): 3}

"""The history checker: was every job done, and none twice?

It holds what jobs recorded themselves (marks, each committed at once on a connection of their own) against what Jobwell's
tables say afterwards. Evidence in (evidence.py), a verdict out.

Words: a *spell* is the time from a claim to the stored outcome of that attempt, by the tables. A *call* is one call of the task's
function, by its marks. A call whose spell ended as `lost` is a fenced zombie: its worker was declared dead while it lived on (a
freeze, a cut network). It may go on for a while beside its successor, but nothing that it says is stored. A plain function on a
thread cannot be stopped either, and may outlive its spell.

Times are compared exactly: marks and the database must share one clock, so this is for one host.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Literal
from uuid import UUID

from jobwell.testing.evidence import Ended, History, Put, Stored

Kind = Literal["lost", "double_finished", "overlapping", "unexplained"]
KINDS: tuple[Kind, ...] = ("lost", "double_finished", "overlapping", "unexplained")
UNCOUNTED = ("snoozed", "released")
ENDING = ("succeeded", "failed", "cancelled")
OUTCOMES = (*ENDING, *UNCOUNTED, "retrying", "lost", "crashed")
NOT_STOPPED = ("released", "retrying", "failed", "cancelled")  # of a plain function on a thread


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise."""

    kind: Kind
    job: UUID | None
    what: str


@dataclass
class Verdict:
    """What was found; `zombies` are the calls that were excused."""

    jobs: int = 0
    calls: int = 0
    zombies: int = 0
    states: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return not self.findings

    def count(self, kind: Kind) -> int:
        """Jobs with findings of a kind; findings without a job count one each."""
        found = [each for each in self.findings if each.kind == kind]
        return len({each.job for each in found if each.job}) + sum(1 for each in found if each.job is None)


@dataclass(slots=True)
class Spell:
    """From a claim to its outcome. `calls` are those that it explains."""

    worker: UUID | None
    attempt: int
    outcome: str
    started: datetime
    ended: datetime | None
    calls: "list[Call]" = field(default_factory=list)


@dataclass(slots=True)
class Call:
    """The marks of one call."""

    job: UUID
    attempt: int
    worker: UUID
    executor: str
    times: dict[str, datetime] = field(default_factory=dict)

    @property
    def last(self) -> datetime:
        """The latest sign of life."""
        return max(self.times.values())


@dataclass(slots=True)
class _Job:
    """Everything about one job."""

    put: Put | None = None
    stored: list[Stored] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    cancels: list[datetime] = field(default_factory=list)
    spells: list[Spell] = field(default_factory=list)


def check(history: History) -> Verdict:
    """Decide. Every finding names the job and says what is wrong in words; the order is that of the ids."""
    jobs = _gathered(history)
    verdict = Verdict(
        jobs=sum(1 for each in jobs.values() if each.stored),
        calls=len({mark.call for mark in history.marks}),
        states=dict(Counter(row.state for row in history.stored)),
        outcomes=dict(Counter(row.outcome for row in history.ended)),
    )
    for id in sorted(jobs):
        job = jobs[id]
        job.spells = _spells(job)
        said: list[tuple[Kind, str]] = []
        for rule in (_place, _log, _order, _numbers, _columns, _explained, _cancelled, _held):
            said += rule(job, history)
        verdict.findings += [Finding(kind, id, what) for kind, what in said]
    verdict.zombies = sum(len(spell.calls) for job in jobs.values() for spell in job.spells if _is_fenced(spell))
    verdict.findings += _locks(jobs, history.tolerance)
    verdict.findings += _sums(history)
    return verdict


def _gathered(history: History) -> dict[UUID, _Job]:
    jobs: dict[UUID, _Job] = defaultdict(_Job)
    for put in history.puts:
        jobs[put.job].put = put
    for row in history.stored:
        jobs[row.job].stored.append(row)
    for end in history.ended:
        jobs[end.job].ended.append(end)
    for cancel in history.cancels:
        jobs[cancel.job].cancels.append(cancel.at)
    calls: dict[UUID, Call] = {}
    for mark in history.marks:
        if mark.call not in calls:
            calls[mark.call] = Call(mark.job, mark.attempt, mark.worker, mark.executor)
            jobs[mark.job].calls.append(calls[mark.call])
        calls[mark.call].times[mark.what] = mark.at
    return dict(jobs)


def _spells(job: _Job) -> list[Spell]:
    found = [Spell(e.worker, e.attempt, e.outcome, e.started_at, e.ended_at) for e in job.ended if e.started_at is not None]
    for row in job.stored:
        # The log has no row of a first attempt that succeeded; and none of one that still runs.
        silent = row.state == "succeeded" and not any(end.outcome == "succeeded" for end in job.ended)
        if row.started_at is not None and (silent or row.state == "running"):
            found.append(Spell(row.worker, row.attempt, row.state, row.started_at, row.ended_at))
    return sorted(found, key=lambda spell: spell.started)


def _place(job: _Job, history: History) -> Iterator[tuple[Kind, str]]:
    ran = bool(job.calls or job.ended)
    if job.put is None:
        yield "unexplained", "nobody has enqueued it"
    elif job.put.fate == "rolled back" and (job.stored or ran):
        yield "unexplained", "its enqueue was rolled back, and it is there or ran"
    elif not job.stored and (job.put.fate == "committed" or (job.put.fate == "unknown" and ran)):
        yield "lost", "its enqueue was committed, and it is nowhere"
    if len(job.stored) > 1:
        places = ", ".join(sorted(f"{row.place} ({row.state})" for row in job.stored))
        yield "double_finished", f"it stands in more than one place: {places}"
    if history.drained:
        for row in job.stored:
            if row.place == "jobs":
                yield "lost", f"it has not come to an end: it is {row.state}"
            elif row.job in history.asked:
                yield "unexplained", "it has ended, and the cancel that was asked for it has stayed behind"


def _log(job: _Job, _: History) -> Iterator[tuple[Kind, str]]:
    for end in job.ended:
        if end.outcome not in OUTCOMES:
            yield "unexplained", f"attempt {end.attempt} has the unknown outcome {end.outcome!r}"
        if end.started_at is None or end.claim is None or end.worker is None:
            yield "unexplained", f"attempt {end.attempt} ({end.outcome}) was logged without a claim"
    for claim, times in Counter(end.claim for end in job.ended if end.claim is not None).items():
        if times > 1:
            yield "double_finished", f"claim {claim} has {times} outcomes"
    endings = [end for end in job.ended if end.outcome in ENDING]
    if len(endings) > 1:
        yield "double_finished", "it ended more than once: " + ", ".join(end.outcome for end in endings)


def _order(job: _Job, history: History) -> Iterator[tuple[Kind, str]]:
    """One claim after the other, and none after the end."""
    for before, after in pairwise(job.spells):
        if before.ended is None or after.started < before.ended - history.tolerance:
            yield "overlapping", f"{_said(after)} was claimed before {_said(before)} had ended"
        if before.outcome in ENDING:
            yield "double_finished", f"{_said(after)} came after it had ended as {before.outcome}"
    for row in job.stored:
        wanted = _last_outcomes(row)
        last = job.spells[-1].outcome if job.spells else None
        if wanted and last not in wanted:
            yield "unexplained", f"it is {row.state} ({row.reason or row.place}), and its last attempt was {last}"
        if row.state != "cancelled" and row.place == "finished" and row.worker is None:
            yield "unexplained", f"it is {row.state} by no worker"


def _last_outcomes(row: Stored) -> tuple[str, ...]:
    if row.place == "quarantine":
        return (row.reason,) if row.reason in ("crashed", "lost") else ("failed",)
    return ("succeeded",) if row.state == "succeeded" else ()


def _numbers(job: _Job, _: History) -> Iterator[tuple[Kind, str]]:
    """Starts that were counted are those that outcomes explain."""
    counted = 0
    for spell in job.spells:
        if spell.attempt != counted + 1:
            yield "unexplained", f"{_said(spell)} should have the number {counted + 1}"
        counted += spell.outcome not in UNCOUNTED
    for row in job.stored:
        if row.attempt != counted:
            yield "unexplained", f"{row.attempt} starts are counted in {row.place}, and outcomes explain {counted}"
        if row.state == "succeeded" and row.attempt > 1 and not any(end.outcome == "succeeded" for end in job.ended):
            yield "unexplained", f"attempt {row.attempt} succeeded, and is not in the log"


def _columns(job: _Job, _: History) -> Iterator[tuple[Kind, str]]:
    outcomes = Counter(end.outcome for end in job.ended)
    for row in job.stored:
        postponed = outcomes["snoozed"] + outcomes["released"]
        for name, stored, told in (
            ("crashes", row.crashes, outcomes["crashed"]), ("losses", row.losses, outcomes["lost"]),
            ("postponements", row.postponements, postponed),
        ):  # fmt: skip
            if stored is not None and stored != told:
                yield "unexplained", f"{name} is {stored}, and the log says {told}"
        most = outcomes["retrying"] + outcomes["failed"]
        # Some ends do not count as failures of the task: its deadline passed, its payload does not fit.
        least = outcomes["retrying"] if row.reason in ("deadline", "invalid") else most
        if not least <= row.failures <= most:
            yield "unexplained", f"failures is {row.failures}, and the log says {most}"


def _explained(job: _Job, history: History) -> Iterator[tuple[Kind, str]]:
    """Runs by spells, and successes by effects."""
    for call in job.calls:
        if "begin" not in call.times:
            yield "unexplained", f"attempt {call.attempt} left marks ({', '.join(sorted(call.times))}) and never began"
            continue
        spell = _spell_of(call, job.spells, history.tolerance)
        if spell is None:
            yield (
                "unexplained",
                f"attempt {call.attempt} ran without a claim, on worker {call.worker} from {call.times['begin']:%T}",
            )
            continue
        spell.calls.append(call)
        late = spell.ended is not None and call.last > spell.ended + history.tolerance
        if late and not _may_outlive(call, spell):
            yield "unexplained", f"{_said(spell)} went on until {call.last:%T.%f}, after its outcome was stored"
    for spell in job.spells:
        if len(spell.calls) > 1:
            yield "overlapping", f"{_said(spell)} was one claim and ran {len(spell.calls)} times"
    last = job.spells[-1] if job.spells else None
    if history.marked and last is not None and last.outcome == "succeeded" and not _has_worked(last, history.tolerance):
        yield "lost", f"{_said(last)} is stored as a success, and it had done nothing"


def _cancelled(job: _Job, history: History) -> Iterator[tuple[Kind, str]]:
    gone = next((row.ended_at for row in job.stored if row.state == "cancelled" and row.ended_at is not None), None)
    for spell in job.spells:
        if gone is not None and spell.started > gone:
            yield "unexplained", f"{_said(spell)} began after the job was stored as cancelled"
        if any(spell.started > at + history.tolerance for at in job.cancels):
            yield "unexplained", f"{_said(spell)} began after somebody had cancelled the job"
    for at in job.cancels:
        ran = any(s.started <= at and (s.ended is None or s.ended >= at - history.lateness) for s in job.spells)
        if gone is None and not ran and job.stored:
            yield "unexplained", f"cancelled at {at:%T.%f} while it waited, it is {job.stored[0].state}"


def _held(job: _Job, history: History) -> Iterator[tuple[Kind, str]]:
    queues = {row.queue for row in job.stored} | {"*"}
    for hold in [hold for hold in history.holds if hold.queue in queues]:
        for spell in job.spells:
            began = spell.started > hold.since + history.lateness
            if began and (hold.until is None or spell.started < hold.until - history.tolerance):
                yield "unexplained", f"{_said(spell)} began while the queue {hold.queue} was held"


def _locks(jobs: dict[UUID, _Job], tolerance: timedelta) -> Iterator[Finding]:
    """One at a time for each key: by the tables, and by what ran in spells that counted."""
    keys: dict[str, list[tuple[datetime, datetime, UUID]]] = defaultdict(list)
    for id, job in jobs.items():
        if job.put is not None and job.put.lock_key:
            far = datetime.max.replace(tzinfo=next((s.started.tzinfo for s in job.spells), None))
            for spell in job.spells:
                keys[job.put.lock_key].append((spell.started, spell.ended or far, id))
    for key, held in keys.items():
        for (_, ended, first), (started, _, second) in pairwise(sorted(held)):
            if started < ended - tolerance and first != second:
                yield Finding("overlapping", second, f"it ran beside {first}, which held the key {key!r}")


def _sums(history: History) -> Iterator[Finding]:
    rows = Counter((row.place, row.state) for row in history.stored)
    for place, state in sorted({*rows, *history.sums}):
        told = history.sums.get((place, state), 0)
        if history.sums and told != rows[place, state]:
            yield Finding("unexplained", None, f"{place}: {told} jobs are counted as {state}, and there are {rows[place, state]}")


def _spell_of(call: Call, spells: Sequence[Spell], tolerance: timedelta) -> Spell | None:
    began = call.times["begin"] + tolerance
    mine = [s for s in spells if s.worker == call.worker and s.attempt == call.attempt and s.started <= began]
    return mine[-1] if mine else None


def _has_worked(spell: Spell, tolerance: timedelta) -> bool:
    effects = [call.times["effect"] for call in spell.calls if "effect" in call.times]
    return any(spell.ended is None or effect <= spell.ended + tolerance for effect in effects)


def _is_fenced(spell: Spell) -> bool:
    return spell.outcome == "lost"


def _may_outlive(call: Call, spell: Spell) -> bool:
    return _is_fenced(spell) or (call.executor == "thread" and spell.outcome in NOT_STOPPED)


def _said(spell: Spell) -> str:
    return f"attempt {spell.attempt} ({spell.outcome}, claimed {spell.started:%T.%f})"

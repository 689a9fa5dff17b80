"""Jobs that are the only ones of their kind: put in, unless an equal one stands for them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from jobwell.core.dedup import Dedup
from jobwell.core.errors import Duplicate, EnqueueError
from jobwell.core.job import NewJob
from jobwell.store.jobs import INLINE
from jobwell.store.statements import Program, Statements

IN_THIS_CALL = "in this call"
TRIES = 100  # each needs a holder that was there and is over a moment later


class Stands(NamedTuple):
    """Which job stands for one that was to be enqueued.

    Attributes:
        outcome: created; or skipped, replaced, debounced.
        state: of the holder, when it was looked at.
    """

    id: UUID
    task: str
    outcome: str = "created"
    state: str = "ready"

    @property
    def created(self) -> bool:
        """Whether it is a job of its own."""
        return self.outcome == "created"


@dataclass(slots=True)
class _Group:
    """Jobs of one call with the same key and terms. The first is put in; where the last one wins, with its contents."""

    places: list[int]
    terms: Dedup
    jobs: list[NewJob]

    @property
    def key(self) -> str:
        return self.jobs[0].dedup_key

    def lead(self) -> dict[str, Any]:
        """The one that is put in. Its contents are those of the last, where a later one replaces."""
        wins = self.jobs[-1] if self.terms.on_conflict in ("replace", "debounce") else self.jobs[0]
        return {"id": self.jobs[0].id} | _asked(wins)


def _asked(job: NewJob) -> dict[str, Any]:
    terms = job.dedup
    assert terms is not None
    return {
        "key": job.dedup_key, "until": terms.until or "window", "span": terms.window, "conflict": terms.on_conflict,
        "slides": terms.sliding, "wait": terms.wait, "longest": terms.longest, "queue": job.queue, "task": job.task,
        "rank": job.rank, "gate": job.gate, "tenant": job.tenant, "lock_key": job.lock_key, "bytes": job.size, "args": job.args,
        "run_at": job.run_at, "delay": job.delay, "deadline": job.deadline,
    }  # fmt: skip


def put(
    statements: Statements, jobs: Sequence[NewJob], meta: str | None, *, own: Callable[[UUID], bool] = lambda _: False
) -> Program[list[Stands]]:
    """Put jobs in that have keys, and tell for each which job stands for it now.

    Args:
        statements: of the store.
        jobs: each has a key.
        meta: what all of them carry.
        own: whether a job is one of the same call, put in before.

    Raises:
        Duplicate: one is refused. The others may be in: the caller undoes what it must.
    """
    found: dict[int, Stands] = {}
    for groups in _rounds(jobs):
        try:
            yield from _put(statements, groups, meta, found)
        except Duplicate as error:
            if error.state == IN_THIS_CALL or not own(error.job_id):
                raise
            raise refused(error, error.job_id, error.task, IN_THIS_CALL) from None
    return [found[place] for place in range(len(jobs))]


def _rounds(jobs: Sequence[NewJob]) -> Iterable[list[_Group]]:
    """Groups of equal jobs, in rounds in which no key stands twice: a second round is for the same key on other terms."""
    by_key: dict[str, list[_Group]] = {}
    for place, job in enumerate(jobs):
        assert job.dedup is not None
        groups = by_key.setdefault(job.dedup_key, [])
        if groups and groups[-1].terms == job.dedup:
            groups[-1].places.append(place)
            groups[-1].jobs.append(job)
        else:
            groups.append(_Group([place], job.dedup, [job]))
    for number in range(max(map(len, by_key.values()), default=0)):
        yield [groups[number] for groups in by_key.values() if len(groups) > number]


def _put(statements: Statements, groups: list[_Group], meta: str | None, found: dict[int, Stands]) -> Program[None]:
    left = {group.key: group for group in groups}
    later: list[_Group] = []  # what stands behind the first of its call
    for _ in range(TRIES):
        given = orjson.dumps([group.lead() for group in left.values()]).decode()
        for (key,) in (yield statements("dedup.add", given=given, meta=meta, inline=INLINE)):
            group = left.pop(key)
            found[group.places[0]] = Stands(group.jobs[0].id, group.jobs[0].task)
            if len(group.jobs) > 1:
                later.append(group)
        if left:
            yield from _suppress(statements, left, meta, found)
        if not left:
            break
    else:
        raise EnqueueError(
            f"who holds the key {next(iter(left))!r} changed each of the {TRIES} times that it was looked at; nothing was"
            " enqueued, try again"
        )
    for group in later:
        yield from _suppress_own(statements, group, meta, found)


def _suppress(statements: Statements, left: dict[str, _Group], meta: str | None, found: dict[int, Stands]) -> Program[None]:
    asked = [_asked(job) for group in left.values() for job in group.jobs]
    rows = yield statements("dedup.suppress", given=orjson.dumps(asked).decode(), meta=meta, inline=INLINE)
    for key, id_, task, state, outcome in rows:
        group = left.pop(key)
        if outcome == "rejected":
            raise refused(group.jobs[0], UUID(id_), task, state)
        for place in group.places:
            found[place] = Stands(UUID(id_), task, outcome, state)


def _suppress_own(statements: Statements, group: _Group, meta: str | None, found: dict[int, Stands]) -> Program[None]:
    """The further ones of a call, behind the first that was just put in."""
    first = found[group.places[0]]
    if group.terms.on_conflict == "reject":
        raise refused(group.jobs[1], first.id, first.task, IN_THIS_CALL)
    rest = {group.key: _Group(group.places[1:], group.terms, group.jobs[1:])}
    yield from _suppress(statements, rest, meta, found)
    for place in group.places[1:]:  # a key that was let go at once: a job that a worker of the caller's transaction cannot see
        found.setdefault(place, first)


def held(statements: Statements, jobs: Sequence[NewJob]) -> Program[set[str]]:
    """Which of the jobs' keys are held by jobs that can be seen now: to spare a COPY that would fail."""
    keys = [job.dedup_key for job in jobs if job.dedup is not None and job.dedup.until is not None]
    rows = yield statements("dedup.held", keys=keys)
    return {row[0] for row in rows}


def refused(job: NewJob | Duplicate, holder: UUID, task: str, state: str) -> Duplicate:
    """The error of a job that is refused."""
    key = job.key if isinstance(job, Duplicate) else job.dedup_key
    stands = f"job {holder} of {task} stands for the key {key!r} (it is {state})"
    if state == "over":
        stands = f"job {holder} of {task} stands for the key {key!r} (it is done, and its window is not over)"
    elif state == IN_THIS_CALL:
        stands = f"a job with the key {key!r} stands earlier in the same call"
    return Duplicate(
        f"{job.task}: {stands}, and a second one is refused; nothing was enqueued",
        job_id=holder, task=job.task, tenant=job.tenant, key=key, state=state,
    )  # fmt: skip


def count_refused(statements: Statements, error: Duplicate) -> Program[None]:
    """Count a refusal whose transaction was undone."""
    row = {
        "task": error.task, "key": error.key, "reason": "rejected", "holder": error.job_id, "state": error.state,
        "tenant": error.tenant,
    }  # fmt: skip
    yield statements("dedup.hit", given=orjson.dumps([row]).decode())


# --- for people and upkeep -----------------------------------------------------------------------------------------------

KEPT_HITS = 100_000  # that are listed; all are counted
TOTAL_COLUMNS = ("task", "reason", "count", "last_at")
HIT_COLUMNS = ("at", "task", "key", "reason", "holder", "state", "tenant")
HOLDER_COLUMNS = ("key", "job", "task", "state", "since", "until", "void")


def totals(statements: Statements, task: str | None) -> Program[list[dict[str, Any]]]:
    """How many enqueues were suppressed, by task and reason."""
    rows = yield statements("dedup.totals", task=task)
    return [dict(zip(TOTAL_COLUMNS, row, strict=True)) for row in rows]


def latest(
    statements: Statements, *, task: str | None = None, key: str | None = None, limit: int = 50
) -> Program[list[dict[str, Any]]]:
    """The last suppressed enqueues, newest first."""
    rows = yield statements("dedup.latest", task=task, key=key, limit=limit)
    return [dict(zip(HIT_COLUMNS, row, strict=True)) for row in rows]


def holders(statements: Statements, key: str) -> Program[list[dict[str, Any]]]:
    """What stands for a key: a job, a window, or both after a change of the task's terms; void windows too."""
    rows = yield statements("dedup.holders", key=key)
    return [dict(zip(HOLDER_COLUMNS, row, strict=True)) for row in rows]


def key_of(statements: Statements, job: UUID) -> Program[str | None]:
    """The key of a job, while it lives, waits in the quarantine, or has a window."""
    rows = yield statements("dedup.key_of", id=job)
    return str(rows[0][0]) if rows else None


def release(statements: Statements, key: str, job: UUID) -> Program[bool]:
    """Let a job stand for its key no more. False: it does not, by now."""
    rows = yield statements("dedup.release", key=key, id=job)
    return bool(rows)


def expire(statements: Statements, limit: int) -> Program[int]:
    """Forget some windows that are over."""
    rows = yield statements("dedup.expire", limit=limit)
    return int(rows[0][0])


def expire_void(statements: Statements, after: str, limit: int) -> Program[str | None]:
    """Look through some windows, and forget those whose jobs have left their work undone."""
    rows = yield statements("dedup.expire_void", after=after, limit=limit)
    looked, last, _ = rows[0]
    return last if looked == limit else None


def fold(statements: Statements, seconds: float, limit: int) -> Program[int]:
    """Count some suppressed enqueues that are listed no more."""
    rows = yield statements("dedup.fold", seconds=seconds, keep=KEPT_HITS, limit=limit)
    return int(rows[0][0])

"""Runs: made, read, moved on and controlled."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from jobwell.core.errors import NotFound
from jobwell.core.runs import BadRow, Card, Counts, ItemError, PartCard, slowest, stage_cards, whole_percent
from jobwell.core.text import check_storable
from jobwell.store import audit
from jobwell.store.arrays import Uuids
from jobwell.store.statements import Program, Statements

FORGOTTEN = 5000  # rows of an old run in one statement
PIECE = 500  # waiting jobs of a cancelled run in one transaction
TURNS = 5  # with some 20,000 items that are cancelled in each


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPart:
    """A preparation, stage or finish of a run that is made, with the contract of its jobs."""

    stage: int
    kind: str
    name: str
    after: int | None
    condition: str
    chunk: int
    room: int
    task: str
    queue: str
    rank: int
    gate: int
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run that is made."""

    id: UUID
    operation: str
    key: str | None
    tenant: str
    params: str | None
    meta: str | None
    canary: dict[str, Any] | None
    on_bad: str
    version: int
    expected: int | None
    by: str
    why: str | None
    parts: Sequence[NewPart]


class Loaded(NamedTuple):
    """An open item of a job. `data` is None where the run stands still."""

    job: UUID
    run_state: str
    no: int
    key: str
    data: str | None
    attempt: int
    tries: int


class Ended(NamedTuple):
    """What became of one item: done, failed, skipped, cancelled; open (once more, after `delay`), or back as it was."""

    job: UUID
    claim: UUID
    run: UUID
    stage: int
    no: int
    state: str
    code: str | None = None
    message: str | None = None
    delay: float = 0.0


class Facts(NamedTuple):
    """What a job needs to know of its run."""

    operation: str
    key: str | None
    params: str | None
    started_by: str
    tenant: str
    secret: UUID


def create(statements: Statements, new: NewRun) -> Program[tuple[UUID, bool]]:
    """Make a run; inside a transaction. Returns its id, or that of the run that has its key, and whether it was made."""
    while not (
        yield statements(
            "runs.create", id=new.id, operation=new.operation, key=new.key, tenant=new.tenant, params=new.params, meta=new.meta,
            canary=None if new.canary is None else orjson.dumps(new.canary).decode(), on_bad=new.on_bad, version=new.version,
            expected=new.expected, by=new.by, why=new.why,
        )
    ):  # fmt: skip
        rows = yield statements("runs.by_key", operation=new.operation, key=new.key)
        if rows:  # otherwise it was refused between the two, and its key is free
            return rows[0][0], False
    for part in new.parts:
        yield statements(
            "runs.add_stage", run=new.id, stage=part.stage, kind=part.kind, name=part.name, after=part.after,
            condition=part.condition, chunk=part.chunk, room=part.room, task=part.task, queue=part.queue, rank=part.rank,
            gate=part.gate, deadline=part.deadline,
        )  # fmt: skip
    yield statements("runs.prepare", run=new.id)
    detail = {"operation": new.operation, "key": new.key, "why": new.why}
    yield from audit.record(statements, actor=new.by, action="runs.start", target=str(new.id), detail=detail)
    return new.id, True


def by_key(statements: Statements, operation: str, key: str) -> Program[UUID]:
    """The run that has a key.

    Raises:
        NotFound: there is none.
    """
    check_storable(operation=operation, key=key)
    rows = yield statements("runs.by_key", operation=operation, key=key)
    if not rows:
        raise NotFound(f"there is no run of {operation} with the key {key!r}")
    found: UUID = rows[0][0]
    return found


def facts(statements: Statements, run: UUID) -> Program[Facts]:
    """What its jobs need to know.

    Raises:
        NotFound: it is gone.
    """
    rows = yield statements("runs.facts", run=run)
    if not rows:
        raise NotFound(f"there is no run {run}: its retention is over, or its id is wrong")
    return Facts(*rows[0])


def turn(statements: Statements, run: UUID) -> Program[bool]:
    """Move a run on; each turn a commit of its own, on a connection in autocommit mode. True: there is more, for the next one."""
    for _ in range(TURNS):
        [(more,)] = yield statements("runs.turn", run=run)
        if not more:
            return False
    return True


def seal(statements: Statements, run: UUID) -> Program[None]:
    """No more items come."""
    yield statements("runs.seal", run=run)


def begins(statements: Statements, run: UUID, stage: int, job: UUID, claim: UUID) -> Program[bool]:
    """Whether a preparation or a finish waits for just this job. One that has failed waits for it again."""
    [(waits,)] = yield statements("runs.begin_part", run=run, stage=stage, job=job, claim=claim)
    return bool(waits)


def end_part(statements: Statements, run: UUID, stage: int, job: UUID, claim: UUID | None) -> Program[None]:
    """A preparation or a finish is done; fenced."""
    yield statements("runs.end_part", run=run, stage=stage, job=job, claim=claim)


def load(statements: Statements, jobs: Sequence[tuple[UUID, UUID, int, Sequence[Sequence[int]]]]) -> Program[list[Loaded]]:
    """The open items of jobs, each with run, stage and spans."""
    flat = [(job, run, stage, first, last) for job, run, stage, spans in jobs for first, last in spans]
    rows = yield statements(
        "runs.load", jobs=Uuids([row[0] for row in flat]), runs=Uuids([row[1] for row in flat]), stages=[row[2] for row in flat],
        firsts=[row[3] for row in flat], lasts=[row[4] for row in flat],
    )  # fmt: skip
    return list(map(Loaded._make, rows))


def record(
    statements: Statements, ended: Sequence[Ended], rest: Sequence[tuple[UUID, str]]
) -> Program[tuple[set[UUID], dict[UUID, str]]]:
    """Write what became of items.

    Args:
        statements: of the store.
        ended: the items.
        rest: for jobs that hand something back, their arguments without it.

    Returns:
        The jobs that were no longer the caller's, and the states of the runs.
    """
    plain = not any(one.code or one.message or one.delay for one in ended)  # mostly: then three arrays need not be made
    rows = yield statements(
        "runs.record", jobs=Uuids([one.job for one in ended]), claims=Uuids([one.claim for one in ended]),
        runs=Uuids([one.run for one in ended]), stages=[one.stage for one in ended], nos=[one.no for one in ended],
        states=[one.state for one in ended], codes=None if plain else [one.code for one in ended],
        messages=None if plain else [one.message for one in ended], delays=None if plain else [one.delay for one in ended],
        rest_jobs=[job for job, _ in rest] or None, rest_args=[args for _, args in rest] or None,
    )  # fmt: skip
    return {id for id, told in rows if told == "lost"}, {id: told for id, told in rows if told != "lost"}


# --- looking ---------------------------------------------------------------------------------------------------------------


def card(statements: Statements, run: UUID) -> Program[Card]:
    """The card of a run.

    Raises:
        NotFound: there is none.
    """
    rows = yield statements("runs.card", run=run)
    if not rows:
        raise NotFound(f"there is no run {run}: its retention is over, or its id is wrong")
    (
        id, operation, key, _, state, sealed, refused, _, _, held, items, duplicates, bad, expected, started_by, by, why, created,
        started, ended, now,
    ) = rows[0]  # fmt: skip
    parts = yield statements("runs.card_stages", run=run)
    busy: dict[int, int] = {}
    if state not in ("completed", "completed_with_errors"):
        busy = dict((yield statements("runs.running", run=run, tasks=[row[6] for row in parts if row[1] == "items"])))
    counts = [_counts(row, busy) for row in parts if row[1] == "items"]
    stages = stage_cards(counts, items=items, known=sealed or refused, now=now)
    last = slowest(stages)
    remaining = last.remaining if last is not None and state in ("queued", "running") else None
    return Card(
        id=id, operation=operation, key=key, status=state, sealed=sealed, total=items, expected=expected, duplicates=duplicates,
        bad_rows=bad, stages=stages, parts=tuple(PartCard(row[2], row[1], row[4], row[7]) for row in parts if row[1] != "items"),
        percent=whole_percent(stages), errors=sum(one.failed for one in stages), speed=last.speed if last else None,
        remaining=remaining, ends_at=_after(now, remaining), canary=held, started_by=started_by, by=by, why=why,
        created_at=created, started_at=started, ended_at=ended,
    )  # fmt: skip


def _counts(row: Sequence[Any], busy: dict[int, int]) -> Counts:
    stage, _, name, after, state, *_, mark_at, mark, speed, _, _ = row[:15]
    done, failed, skipped, cancelled, accepted, delivered, bounced = row[15:]
    return Counts(
        stage=stage, name=name, after=after, state=state, done=done, failed=failed, skipped=skipped, cancelled=cancelled,
        accepted=accepted, delivered=delivered, bounced=bounced, running=busy.get(stage, 0), mark_at=mark_at, mark=mark,
        speed=speed,
    )  # fmt: skip


def _after(now: datetime, seconds: float | None) -> datetime | None:
    from datetime import timedelta

    return None if seconds is None else now + timedelta(seconds=seconds)


def recount(statements: Statements, run: UUID) -> Program[dict[int, tuple[int, int, int, int]]]:
    """done, failed, skipped and cancelled by stage, counted from the rows; for checks: it reads all of them."""
    rows = yield statements("runs.recount", run=run)
    return {row[0]: (row[1], row[2], row[3], row[4]) for row in rows}


def errors(
    statements: Statements, run: UUID, *, limit: int, after: tuple[int, int] | None, code: str | None
) -> Program[list[ItemError]]:
    """Failed items, page by page."""
    check_storable(code=code)
    stage, no = after or (-1, 0)
    rows = yield statements("runs.errors", run=run, limit=limit, after_stage=stage, after_no=no, code=code)
    return [
        ItemError(row[1], row[2], row[3], row[4], row[5], row[6], row[7], orjson.loads(row[8]), (row[0], row[2])) for row in rows
    ]


def reasons(statements: Statements, run: UUID, *, limit: int) -> Program[list[tuple[str, str | None, int]]]:
    """Why items have failed: (stage, code, how many), the most frequent first."""
    rows = yield statements("runs.reasons", run=run, limit=limit)
    return [(row[0], row[1], row[2]) for row in rows]


def item(statements: Statements, run: UUID, key: str) -> Program[list[dict[str, Any]]]:
    """What became of one item, stage by stage."""
    check_storable(key=key)
    rows = yield statements("runs.item", run=run, key=key)
    names = ("stage", "state", "code", "message", "attempt", "at", "delivery", "delivery_at")
    return [dict(zip(names, row, strict=True)) for row in rows]


def bad_rows(statements: Statements, run: UUID, *, limit: int, after: int) -> Program[list[BadRow]]:
    """Rows that do not fit, in the order of the input."""
    rows = yield statements("runs.bad_rows", run=run, limit=limit, after_row=after, after_id=2**62)
    return [BadRow(row[1], row[2], row[3], row[4]) for row in rows]


def latest(
    statements: Statements, *, operation: str | None, state: str | None, before: datetime | None, limit: int
) -> Program[list[dict[str, Any]]]:
    """The newest runs."""
    rows = yield statements("runs.list", operation=operation, state=state, before=before, limit=limit)
    names = ("id", "operation", "key", "status", "items", "started_by", "created_at", "ended_at")
    return [dict(zip(names, row, strict=True)) for row in rows]


# --- acting ----------------------------------------------------------------------------------------------------------------


def _check_choice(stage: str | None, code: str | None, keys: Sequence[str] | None) -> None:
    check_storable(stage=stage, code=code)
    for key in keys or ():
        check_storable(keys=key)


def change(statements: Statements, verb: str, run: UUID, *, by: str, why: str | None) -> Program[bool]:
    """pause, resume, let_go (the rest behind a canary) or cancel, with its audit row. False: there was nothing to change."""
    check_storable(by=by, why=why)
    rows = yield statements(f"runs.{verb}", run=run, by=by, why=why)
    if rows:
        yield from audit.record(statements, actor=by, action=f"runs.{verb}", target=str(run), detail={"why": why})
    return bool(rows)


def prepare_again(statements: Statements, run: UUID) -> Program[None]:
    """A preparation that has failed is enqueued once more."""
    yield statements("runs.prepare", run=run)


def cancel_jobs(statements: Statements, run: UUID, *, by: str, why: str | None) -> Program[bool]:
    """Some of the waiting jobs of a cancelled run. True: there may be more."""
    [(count,)] = yield statements("runs.cancel_jobs", run=run, by=by, why=why, limit=PIECE)
    return bool(count >= PIECE)


def count_failed(
    statements: Statements, run: UUID, *, stage: str | None, code: str | None, keys: Sequence[str] | None
) -> Program[int]:
    """How many items a retry would open."""
    _check_choice(stage, code, keys)
    [(count,)] = yield statements("runs.count_failed", run=run, stage=stage, code=code, keys=keys)
    return int(count)


def retry(
    statements: Statements,
    run: UUID,
    *,
    stage: str | None,
    code: str | None,
    keys: Sequence[str] | None,
    by: str,
    why: str | None,
) -> Program[int]:
    """Open failed items again. Returns how many; -1: the run cannot be retried as it is."""
    check_storable(by=by, why=why)
    _check_choice(stage, code, keys)
    [(count,)] = yield statements("runs.retry", run=run, stage=stage, code=code, keys=keys, by=by, why=why)
    if count > 0:
        detail = {"items": count, "stage": stage, "code": code, "keys": list(keys or ())[:100] or None, "why": why}
        yield from audit.record(statements, actor=by, action="runs.retry", target=str(run), detail=detail)
    return int(count)


def deliver(statements: Statements, item: tuple[UUID, int, int], state: str, message: str | None) -> Program[str]:
    """What is told of a sent item later. 'changed', 'known' or 'unknown'."""
    run, stage, no = item
    [(told,)] = yield statements("runs.deliver", run=run, stage=stage, no=no, state=state, message=message)
    return str(told)


# --- keeping ---------------------------------------------------------------------------------------------------------------


def to_look_at(statements: Statements, *, every: float, still: float) -> Program[list[tuple[UUID, bool]]]:
    """Active runs that nobody has looked at lately, and whether each has stood still for so long."""
    rows = yield statements("runs.to_look_at", every=every, still=still)
    return [(row[0], row[1]) for row in rows]


def rescue(statements: Statements, run: UUID) -> Program[int]:
    """Open items without a job wait in lots again. Returns how many there were."""
    [(count,)] = yield statements("runs.rescue", run=run)
    return int(count)


def forget(statements: Statements, *, seconds: float) -> Program[bool]:
    """A piece of the oldest run that ended so long ago. True: there is more."""
    rows = yield statements("runs.old", seconds=seconds)
    if not rows:
        return False
    run = rows[0][0]
    for table in ("items", "states", "bad_rows", "rest"):
        [(gone,)] = yield statements(f"runs.forget_{table}", run=run, limit=FORGOTTEN)
        if gone:
            return True
    return True

"""What lists and reports of runs read: in pages, so that a million items are no burden."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

from jobwell.core.errors import NotFound
from jobwell.core.runs import Card, Counts, ItemError, Pace, stage_cards, whole_percent
from jobwell.store import runs
from jobwell.store.arrays import Uuids
from jobwell.store.database import Database
from jobwell.store.statements import Program, Statements, run

PAGE = 2000
LOOKED_AT = 500  # items from which the fields of all of them are known
SLICES = 60
LISTED = ("id", "operation", "key", "status", "items", "percent", "failed", "bad_rows", "started_by", "created_at", "ended_at")


def find(statements: Statements, typed: str) -> Program[UUID]:
    """A run by the beginning of its id; by its key; or by `operation:key`.

    Raises:
        NotFound: there is none, or there are several.
    """
    plain = typed.replace("-", "").lower()
    if 4 <= len(plain) <= 32 and all(letter in "0123456789abcdef" for letter in plain):
        rows = yield statements("run_reports.by_id", low=UUID(plain.ljust(32, "0")), high=UUID(plain.ljust(32, "f")))
        if len(rows) > 1:
            raise NotFound(f"the ids of several runs begin with {typed!r}; give more of it")
        if rows:
            return UUID(str(rows[0][0]))
    rows = yield statements("run_reports.by_key", key=typed, operation=None)
    if not rows and ":" in typed:
        operation, _, key = typed.partition(":")
        rows = yield statements("run_reports.by_key", key=key, operation=operation)
    if len({operation for _, operation in rows}) > 1:
        raise NotFound(f"runs of several operations have the key {typed!r}; write it as {rows[0][1]}:{typed}")
    if not rows:
        raise NotFound(f"no run has an id that begins with {typed!r}, or this key; `jobwell runs list` shows those there are")
    return UUID(str(rows[0][0]))


def listed(
    statements: Statements, *, operation: str | None, status: str | None, before: UUID | None, limit: int
) -> Program[list[dict[str, Any]]]:
    """The newest runs, with their percent and failures as their cards have them."""
    rows = yield statements("run_reports.listed", operation=operation, state=status, before=before, limit=limit)
    counts: dict[UUID, list[Counts]] = {}
    for run_id, *row in (yield statements("run_reports.counts", runs=Uuids([row[0] for row in rows]))):
        counts.setdefault(run_id, []).append(Counts(*row))
    found = []
    for *row, known, now in rows:
        cards = stage_cards(counts.get(row[0], []), items=row[4], known=known, now=now)
        percent, failed = whole_percent(cards), sum(one.failed for one in cards)
        found.append(dict(zip(LISTED, (*row[:5], percent, failed, *row[5:]), strict=True)))
    return found


def operations(statements: Statements) -> Program[list[str]]:
    """The names of operations of which there are runs."""
    rows = yield statements("run_reports.operations")
    return [row[0] for row in rows]


def pace(statements: Statements, card: Card, until: datetime) -> Program[Pace]:
    """When its items came to an end. Reads all states, so it is for reports."""
    since = card.started_at or card.created_at
    until = max(card.ended_at or until, since)
    if until == since:
        return Pace(since, until, {}, ())
    names = {row[0]: row[1] for row in (yield statements("run_reports.stages", run=card.id))}
    rows = yield statements("run_reports.pace", run=card.id, since=since, until=until, slices=SLICES)
    ended = {name: [0] * SLICES for name in names.values()}
    failed = [0] * SLICES
    for stage, at, count, flawed in rows:
        ended[names[stage]][at - 1] += count
        failed[at - 1] += flawed
    return Pace(since, until, {name: tuple(counts) for name, counts in ended.items()}, tuple(failed))


def fields(statements: Statements, id: UUID) -> Program[list[str]]:
    """The names of the fields of its items, in their order, as the first ones have them."""
    found: dict[str, None] = {}
    for (data,) in (yield statements("run_reports.first_data", run=id, limit=LOOKED_AT)):
        found.update(dict.fromkeys(orjson.loads(data)))
    return list(found)


def errors(database: Database, id: UUID, *, code: str | None = None, limit: int | None = None) -> Iterator[ItemError]:
    """Failed items in the order of stages and numbers, a page at a time, no transaction open between pages.

    Raises:
        StoreUnavailable: the database went away in the middle.
    """
    place, left = None, limit
    with closing(database.connect("report")) as conn:
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            with database.telling():
                rows = run(conn, runs.errors(database.statements, id, limit=size, after=place, code=code))
            yield from rows
            if len(rows) < size:
                return
            place = rows[-1].place
            left = None if left is None else left - len(rows)


def results(database: Database, id: UUID) -> Iterator[dict[str, Any]]:
    """All items in the order of their numbers, each with its state in every stage; as `errors`, a page at a time.

    Raises:
        StoreUnavailable: the database went away in the middle.
    """
    after = 0
    with closing(database.connect("report")) as conn:
        with database.telling():
            stages = run(conn, _stages(database.statements, id))
        while True:
            with database.telling():
                rows = run(conn, _page(database.statements, id, stages, after))
            yield from rows
            if len(rows) < PAGE:
                return
            after = rows[-1]["no"]


Stages = Sequence[tuple[int, str, int | None]]


def _stages(statements: Statements, id: UUID) -> Program[Stages]:
    rows = yield statements("run_reports.stages", run=id)
    return [(row[0], row[1], row[2]) for row in rows]


def _page(statements: Statements, id: UUID, stages: Stages, after: int) -> Program[list[dict[str, Any]]]:
    items = yield statements("run_reports.items", run=id, after=after, limit=PAGE)
    if not items:
        return []
    of: dict[int, Mapping[int, tuple[Any, ...]]] = {}
    for stage, *_ in stages:
        rows = yield statements("run_reports.states", run=id, stage=stage, first=items[0][0], last=items[-1][0])
        of[stage] = {row[0]: row for row in rows}
    return [_result(item, stages, of) for item in items]


def _result(item: tuple[Any, ...], stages: Stages, of: Mapping[int, Mapping[int, tuple[Any, ...]]]) -> dict[str, Any]:
    no, key, data = item
    made: dict[str, Any] = {"no": no, "key": key, "states": {}, "code": None, "message": None, "at": None}
    for stage, name, before in stages:
        row = of[stage].get(no)
        if row is None:
            came = before is None or (made["states"].get(_name(stages, before)) == "done")
            made["states"][name] = "open" if came else ""
            continue
        made["states"][name] = row[1]
        if made["code"] is None and row[1] in ("failed", "skipped"):
            made["code"], made["message"] = row[2], row[3]
        at = row[5].astimezone(UTC)
        made["at"] = at if made["at"] is None else max(at, made["at"])
    made["data"] = orjson.loads(data)
    return made


def _name(stages: Stages, number: int) -> str:
    return next(name for stage, name, _ in stages if stage == number)

"""The facts about why a job does not run."""

import dataclasses
from typing import Any
from uuid import UUID

from jobwell.core.errors import NotFound
from jobwell.core.why import CAP, Awaited, Because, Facts, explain
from jobwell.store import breakers, follow, limits
from jobwell.store.statements import Program, Statements

SLOTS = ("slots", "busy", "pooled", "cost", "fitting", "heavy", "held", "held_why")
KEY = ("skips", "key_wait", "before", "before_state")
LATER = {  # found by statements of their own
    *SLOTS[2:], *KEY, "tenant", "holds", "limits", "broken", "pace_above", "pace_lane", "awaited", "awaits",
}  # fmt: skip
_NAMES = (*(field.name for field in dataclasses.fields(Facts) if field.name not in LATER), "tenant")
PAGES = 256  # of the youngest finished jobs, looked at for their pace
LATELY = 300.0
ENOUGH = 5  # jobs for a pace
SHOWN = 5  # of those that it waits for


def facts(statements: Statements, job: UUID) -> Program[Facts]:
    """What there is to know about a job. What a waiting one waits for is read a moment later, in a few statements more.

    Raises:
        NotFound: it is nowhere.
    """
    rows = yield statements("why.facts", id=job, cap=CAP)
    if not rows:
        raise NotFound(f"there is no job {job}; its retention may be over")
    found = dict(zip(_NAMES, rows[0], strict=True))
    if found["ended_at"] is None and found["state"] != "running":
        found["holds"] = yield from limits.holding(statements, job)
        found["broken"] = yield from breakers.before(statements, job)
    if found["state"] == "waiting":
        found |= yield from _awaited(statements, job)
    if found["state"] == "ready":
        (slots,) = yield statements("why.slots", id=job)
        if slots[3] is not None:  # it is still there
            found |= dict(zip(SLOTS, slots, strict=True))
        found["limits"] = yield from limits.behind(statements, job)
        if found["lock_key"] and (rows := (yield statements("why.key", id=job))):
            found |= dict(zip(KEY, rows[0], strict=True))
        if found["above"] or found["older"]:
            found["pace_above"], found["pace_lane"] = yield from _pace(statements, found)
    return Facts(**found)


def reasons(statements: Statements, job: UUID) -> Program[list[Because]]:
    """Why it does not run, the reason to look at first in front.

    Raises:
        NotFound: it is nowhere.
    """
    return explain((yield from facts(statements, job)))


def _awaited(statements: Statements, job: UUID) -> Program[dict[str, Any]]:
    counts = yield from follow.counts(statements, job)
    before = yield from follow.before(statements, job, limit=SHOWN)
    there = tuple(
        Awaited(one.id, one.now, one.task)
        for one in before
        if one.state == "live" or (one.state == "failed" and not counts.ended)
    )
    return {"awaited": there, "awaits": counts.live + (0 if counts.ended else counts.failed)}


def _pace(statements: Statements, found: dict[str, Any]) -> Program[tuple[float | None, float | None]]:
    ((page, now),) = yield statements("why.tail", pages=PAGES)
    lane = {name: found[name] for name in ("queue", "task", "tenant")}
    rows = yield statements("why.pace", **lane, page=str(page), now=now, seconds=LATELY)
    ended, since, own, own_since = rows[0]
    return _a_second(ended, since), _a_second(own, own_since)


def _a_second(ended: int, since: float | None) -> float | None:
    return ended / since if ended >= ENOUGH and since else None

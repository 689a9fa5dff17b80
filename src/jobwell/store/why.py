"""The facts about why a job does not run."""

import dataclasses
from uuid import UUID

from jobwell.core.errors import NotFound
from jobwell.core.why import CAP, Because, Facts, explain
from jobwell.store import limits
from jobwell.store.statements import Program, Statements

_NAMES = tuple(field.name for field in dataclasses.fields(Facts))
PAGES = 256  # of the youngest finished jobs, looked at for their pace
LATELY = 300.0
ENOUGH = 5  # jobs for a pace


def facts(statements: Statements, job: UUID) -> Program[Facts]:
    """What there is to know about a job: a few statements, each bounded however many jobs there are.

    Raises:
        NotFound: it is nowhere.
    """
    rows = yield statements("why.facts", id=job, cap=CAP)
    if not rows:
        raise NotFound(f"there is no job {job}; its retention may be over")
    *columns, tenant = rows[0]
    found = Facts(**dict(zip(_NAMES, columns, strict=False)))
    if found.ended_at is not None or found.state == "running":
        return found
    found = dataclasses.replace(found, held=(yield from limits.holding(statements, job)))
    if found.state != "ready":
        return found
    found = dataclasses.replace(found, limits=(yield from limits.behind(statements, job)))
    if found.lock_key and (rows := (yield statements("why.key", id=job))):
        skips, wait, before, state = rows[0]
        found = dataclasses.replace(found, skips=skips, key_wait=wait, before=before, before_state=state)
    if found.above or found.older:
        above, lane = yield from _pace(statements, found, tenant)
        found = dataclasses.replace(found, pace_above=above, pace_lane=lane)
    return found


def reasons(statements: Statements, job: UUID) -> Program[list[Because]]:
    """Why it does not run, the reason to look at first in front.

    Raises:
        NotFound: it is nowhere.
    """
    return explain((yield from facts(statements, job)))


def _pace(statements: Statements, found: Facts, tenant: str) -> Program[tuple[float | None, float | None]]:
    rows = yield statements("why.tail", pages=PAGES)
    page, now = rows[0]
    rows = yield statements(
        "why.pace", queue=found.queue, task=found.task, tenant=tenant, page=str(page), now=now, seconds=LATELY
    )
    ended, since, own, own_since = rows[0]
    return _a_second(ended, since), _a_second(own, own_since)


def _a_second(ended: int, since: float | None) -> float | None:
    return ended / since if ended >= ENOUGH and since else None

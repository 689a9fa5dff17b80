"""The facts about why a job does not run."""

import dataclasses
from uuid import UUID

from jobwell.core.errors import NotFound
from jobwell.core.why import CAP, Facts
from jobwell.store.statements import Program, Statements

SLOTS = ("slots", "busy", "pooled", "cost", "fitting", "heavy", "held", "held_why")
_NAMES = tuple(field.name for field in dataclasses.fields(Facts) if field.name not in SLOTS[2:])


def facts(statements: Statements, job: UUID) -> Program[Facts]:
    """What there is to know about a job; of the slots that may wait for it a moment later.

    Raises:
        NotFound: it is nowhere.
    """
    rows = yield statements("why.facts", id=job, cap=CAP)
    if not rows:
        raise NotFound(f"there is no job {job}; its retention may be over")
    found = dict(zip(_NAMES, rows[0], strict=True))
    if found["state"] == "ready":
        (slots,) = yield statements("why.slots", id=job)
        if slots[3] is not None:  # it is still there
            found |= dict(zip(SLOTS, slots, strict=True))
    return Facts(**found)

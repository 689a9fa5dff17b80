"""The facts about why a job does not run."""

import dataclasses
from uuid import UUID

from jobwell.core.errors import NotFound
from jobwell.core.why import CAP, Facts
from jobwell.store.statements import Program, Statements

_NAMES = tuple(field.name for field in dataclasses.fields(Facts))


def facts(statements: Statements, job: UUID) -> Program[Facts]:
    """What there is to know about a job, in one statement.

    Raises:
        NotFound: it is nowhere.
    """
    rows = yield statements("why.facts", id=job, cap=CAP)
    if not rows:
        raise NotFound(f"there is no job {job}; its retention may be over")
    return Facts(**dict(zip(_NAMES, rows[0], strict=True)))

"""Actions on runs, by their ids alone: what operators do, without the code of the application."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from jobwell.core.errors import Conflict, NotFound
from jobwell.core.runs import Card
from jobwell.runs import control
from jobwell.runs.control import Verb
from jobwell.store import runs as store
from jobwell.store.database import Database
from jobwell.store.statements import run

_REACHED: Final = {"pause": ("paused",), "resume": ("queued", "running"), "cancel": ("cancelled",)}
_WORDS: Final = {"pause": "paused", "resume": "resumed", "let_go": "let go", "cancel": "cancelled"}


def change(database: Database, verb: Verb, id: UUID, *, by: str, why: str | None = None) -> tuple[bool, Card]:
    """Pause, resume, let go behind a canary, or cancel; audited.

    Args:
        database: the store.
        verb: what to do.
        id: of the run.
        by: who acts.
        why: the reason, which stands on the card.

    Returns:
        Whether something was changed, and the card after it. Nothing is changed where the run is as it should be already.

    Raises:
        NotFound: there is no such run.
        Conflict: it is in a state in which this means nothing.
    """
    statements = database.statements
    with database.connect("actions") as conn, database.telling():
        with conn.transaction():
            done = run(conn, control.change(statements, verb, id, by, why))
        if done:
            run(conn, control.follow(statements, verb, id, by, why))
        card = run(conn, store.card(statements, id))
    if not done and card.status not in _REACHED.get(verb, ()):
        raise Conflict(_refusal(verb, card))
    return done, card


def _refusal(verb: str, card: Card) -> str:
    state = card.status.replace("_", " ")
    said = f"run {card.id} is {state} and cannot be {_WORDS[verb]}"
    if verb == "resume" and card.canary and card.status == "paused":
        return f"{said}: the rest waits behind its canary; `jobwell runs continue {card.id}` lets it go. Nothing was changed"
    if verb == "let_go":
        said = f"run {card.id} is {state}, and nothing waits behind a canary in it"
    return f"{said}. Nothing was changed"


def preview(
    database: Database, id: UUID, *, stage: str | None = None, code: str | None = None, keys: Sequence[str] | None = None
) -> int:
    """How many failed items a retry with the same choice would open.

    Args:
        database: the store.
        id: of the run.
        stage: only those that failed in this stage.
        code: only those that failed for this.
        keys: only these items.

    Raises:
        NotFound: there is no such run, or no such stage or item in it.
    """
    statements = database.statements
    with database.connect("actions") as conn, database.telling():
        card = run(conn, store.card(statements, id))
        if stage is not None and stage not in (names := [one.name for one in card.stages]):
            raise NotFound(f"run {id} has no stage {stage!r}; there are {', '.join(names)}")
        for key in keys or ():
            if not run(conn, store.item(statements, id, key)):
                raise NotFound(f"run {id} has no item {key!r}; nothing was done")
        return run(conn, store.count_failed(statements, id, stage=stage, code=code, keys=keys))


def retry(
    database: Database,
    id: UUID,
    *,
    by: str,
    why: str | None = None,
    stage: str | None = None,
    code: str | None = None,
    keys: Sequence[str] | None = None,
) -> int:
    """Open failed items again, exactly those; audited. What is open already is not taken twice.

    Args:
        database: the store.
        id: of the run.
        by: who acts.
        why: the reason.
        stage: only those that failed in this stage.
        code: only those that failed for this.
        keys: only these items. Without a choice: all, and finishes that failed.

    Returns:
        How many.

    Raises:
        NotFound: there is no such run.
        Conflict: nothing ran in it, or it is still being cancelled.
    """
    statements = database.statements
    with database.connect("actions") as conn, database.telling():
        with conn.transaction():
            found = run(conn, control.retry(statements, id, stage=stage, code=code, keys=keys, by=by, why=why))
        run(conn, store.turn(statements, id))
    return found

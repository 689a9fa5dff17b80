"""What the live releases declare, as their workers publish it."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from jobwell.core import published
from jobwell.core.published import Published
from jobwell.store.statements import Program, Statements

MOST = 10_000


def publish(
    statements: Statements, worker: UUID, specs: Mapping[str, str], *, release: str, former: Iterable[str] = ()
) -> Program[int]:
    """Say what a worker can run: on its own row, and in the catalog.

    Args:
        statements: of the store.
        worker: registered already.
        specs: the contract of each task as JSON, by name.
        release: of Jobwell, which wrote them.
        former: names that tasks had before; it can run these too.

    Returns:
        How many rows of the catalog were new, changed, or not seen for an hour.
    """
    names = sorted(specs)
    rows = yield statements(
        "catalog.publish", worker=worker, known=sorted({*names, *former}), tasks=names, specs=[specs[name] for name in names],
        release=release,
    )  # fmt: skip
    return int(rows[0][0])


def one(statements: Statements, task: str) -> Program[Published]:
    """A published task.

    Raises:
        NotFound: nobody has published it; the sentence names the nearest.
        DeclarationError: another release has published it in a form that this one cannot read.
    """
    rows = yield statements("catalog.one", task=task)
    if not rows:
        raise published.unknown(task, (yield from names(statements)))
    return published.read(task, rows[0][0])


def names(statements: Statements) -> Program[list[str]]:
    """All tasks that somebody has published."""
    rows = yield statements("catalog.names", limit=MOST)
    return [name for (name,) in rows]


def queues(statements: Statements) -> Program[list[str]]:
    """Queues that a live worker serves, or that a published task names."""
    rows = yield statements("catalog.queues")
    return [name for (name,) in rows]

"""Failed jobs get other arguments: some that are named, a piece of many, or none of many where one would not do."""

from collections.abc import Callable, Sequence
from uuid import UUID

from jobwell.core import published
from jobwell.core.editing import Edit, merged
from jobwell.core.errors import EnqueueError, NotFound
from jobwell.core.filters import Selection
from jobwell.core.published import Published
from jobwell.core.task import TaskSpec
from jobwell.store import catalog, quarantine
from jobwell.store.statements import Program, Statements

Code = Callable[[str], TaskSpec | None]  # of a task, where it is known


def nobodys(task: str) -> TaskSpec | None:
    """No code is known."""
    del task
    return None


def check(statements: Statements, chosen: Selection, edit: Edit, code: Code = nobodys) -> Program[None]:
    """Whether all jobs of a choice take it. Reads them all, and changes nothing.

    Raises:
        InvalidArguments, PayloadTooLarge: one does not; the sentence names it.
    """
    tasks = _Tasks(statements, code)
    after = UUID(int=0)
    while True:
        rows = yield statements("quarantine.look", **chosen.parameters(), after=after, limit=quarantine.PIECE)
        for job, task, stored in rows:
            known, spec = yield from tasks.of(task)
            merged(job, task, stored, edit, known=known, spec=spec)
        if len(rows) < quarantine.PIECE:
            return
        after = rows[-1][0]


def apply(
    statements: Statements,
    ids: Sequence[UUID],
    edit: Edit,
    *,
    actor: str,
    why: str | None,
    code: Code = nobodys,
    lenient: bool = False,
) -> Program[list[UUID]]:
    """Give it to these jobs, which stay locked until the transaction ends; the original arguments are kept.

    Args:
        statements: of the store.
        ids: the jobs.
        edit: what goes in place of what they have.
        actor: who does it.
        why: the reason.
        code: of tasks, where it is known.
        lenient: a job that does not take it is left out, and the others are not held up by it.

    Returns:
        Those that have it now. Whoever is not among them must not be let go: it would run with what it has.

    Raises:
        InvalidArguments, PayloadTooLarge: one does not take it, and `lenient` was not said.
    """
    tasks = _Tasks(statements, code)
    made: list[tuple[UUID, str]] = []
    for job, task, stored in (yield from quarantine.arguments(statements, ids)):
        known, spec = yield from tasks.of(task)
        try:
            made.append((job, merged(job, task, stored, edit, known=known, spec=spec)))
        except EnqueueError:
            if not lenient:
                raise
    yield from quarantine.edit(statements, made, actor=actor, why=why)
    return [job for job, _ in made]


class _Tasks:
    """What is known of tasks, asked once for each: by their code, or else as their workers have published them."""

    def __init__(self, statements: Statements, code: Code) -> None:
        self._statements = statements
        self._code = code
        self._known: dict[str, tuple[Published | None, TaskSpec | None]] = {}

    def of(self, task: str) -> Program[tuple[Published | None, TaskSpec | None]]:
        """The contract, and the code."""
        if task not in self._known:
            spec = self._code(task)
            if spec is not None:
                self._known[task] = published.read(task, published.publish(spec)), spec
            else:
                try:
                    self._known[task] = (yield from catalog.one(self._statements, task)), None
                except NotFound:
                    self._known[task] = None, None
        return self._known[task]

"""Waiting for jobs and reading what they returned. It polls with growing rests and needs no LISTEN.

No connection is held between two looks: any number of waiters share the few of the pool.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jobwell.client import transactions
from jobwell.client.handle import Handle
from jobwell.core import outcome
from jobwell.core.catalog import Catalog
from jobwell.core.duration import Duration, seconds
from jobwell.core.duration import text as duration_text
from jobwell.core.errors import (
    InvalidArguments,
    JobCancelled,
    JobFailed,
    NotFound,
    ResultError,
    ResultExpired,
    ResultMismatch,
    ResultUnavailable,
    WaitTimeout,
)
from jobwell.core.states import TERMINAL
from jobwell.store import results
from jobwell.store.results import Stand
from jobwell.store.statements import arun, run

if TYPE_CHECKING:
    from jobwell.client.client import Client

Jobs = Iterable[Handle[Any] | UUID]

SHORTEST_REST, LONGEST_REST, GROWTH = 0.002, 0.25, 1.6
PIECE = 1000  # jobs in one look


class Waiting:
    """What is waited for, and what has come of it. Knows no connection and no clock.

    Args:
        wanted: the jobs, each with the name of the task that it must be of, or "".
        catalog: knows the types of results.
        timeout: seconds.
        now: monotonic.
        gather: whether an error of one job is a value like any other, or is raised as soon as it is seen.
    """

    def __init__(
        self, wanted: Sequence[tuple[UUID, str]], catalog: Catalog, timeout: float, now: float, *, gather: bool = False
    ) -> None:
        self._wanted = wanted
        self._catalog = catalog
        self._timeout = timeout
        self._until = now + timeout
        self._gather = gather
        self._rest = SHORTEST_REST
        self._pending = dict(wanted)
        self._states: dict[UUID, str] = {}
        self._found: dict[UUID, Any] = {}

    def pieces(self) -> Iterator[list[UUID]]:
        """What is to be looked at now, in bounded pieces."""
        open_ = list(self._pending)
        for at in range(0, len(open_), PIECE):
            yield open_[at : at + PIECE]

    def take(self, asked: Sequence[UUID], stands: Sequence[Stand]) -> None:
        """What a look has shown.

        Raises:
            ResultError, NotFound: of the first of them that has no result to give, unless errors are gathered.
        """
        seen: dict[UUID, Stand] = {}
        for stand in stands:
            seen.setdefault(stand.id, stand)  # a live one goes before what it was earlier
        for job in asked:
            now = seen.get(job)
            if now is not None and now.state not in TERMINAL:
                self._states[job] = now.state
                continue
            try:
                self._found[job] = self._value(job, now)
            except (ResultError, NotFound) as error:
                if not self._gather:
                    raise
                self._found[job] = error
            del self._pending[job]

    def _value(self, job: UUID, stand: Stand | None) -> Any:
        if stand is None:
            raise NotFound(f"there is no job {job}: its retention is over, or its transaction has not committed")
        must_be = self._pending[job]
        # A former name of the task is its own.
        if must_be and must_be != stand.task and self._catalog.get(must_be) is not self._catalog.get(stand.task):
            raise NotFound(f"there is no job {job} of {must_be}")
        return value(stand, self._catalog)

    def rest(self, now: float) -> float | None:
        """Seconds until the next look; None: everything is there.

        Raises:
            WaitTimeout: the time is over, unless errors are gathered.
        """
        if not self._pending:
            return None
        left = self._until - now
        if left <= 0:
            self._give_up()
            return None
        rest, self._rest = min(self._rest, left), min(self._rest * GROWTH, LONGEST_REST)
        return rest

    def _give_up(self) -> None:
        limit = duration_text(self._timeout)
        if not self._gather:
            first = next(iter(self._pending))
            state, count = self._states[first], len(self._pending)
            what = (
                f"job {first} is" if len(self._wanted) == 1 else f"{count} of {len(self._wanted)} jobs have not ended; {first} is"
            )
            raise WaitTimeout(f"{what} {state} after {limit} of waiting; nothing is lost, ask again", job_id=first, state=state)
        for job in self._pending:
            said = f"job {job} is {self._states[job]} after {limit} of waiting; nothing is lost, ask again"
            self._found[job] = WaitTimeout(said, job_id=job, state=self._states[job])

    def values(self) -> list[Any]:
        """What came of all of them, in the order asked."""
        return [self._found[job] for job, _ in self._wanted]


def value(stand: Stand, catalog: Catalog) -> Any:
    """What an ended job returned.

    Raises:
        JobFailed, JobCancelled, ResultExpired, ResultUnavailable, ResultMismatch: there is no result to give.
    """
    job, note = stand.id, stand.note
    if stand.state == "failed":
        raise _failed(stand)
    if stand.state == "cancelled":
        raise JobCancelled(f"job {job} of {stand.task} was cancelled{f': {note}' if note else ''}", job_id=job, note=note)
    if stand.result is None:
        if note == outcome.RESULT_EXPIRED:
            raise ResultExpired(f"job {job} of {stand.task} succeeded; {note}: see result_ttl of its task")
        if note is not None and note.startswith(outcome.NO_RESULT):
            raise ResultUnavailable(f"job {job} of {stand.task} succeeded, and is not done again; {note}", note=note)
        return None
    return _decoded(stand, stand.result, catalog)


def _failed(stand: Stand) -> JobFailed:
    said = ": ".join(filter(None, (stand.code or stand.error_type, stand.message or stand.note)))
    attempts = f"{stand.attempt} attempt{'' if stand.attempt == 1 else 's'}"
    what = f"job {stand.id} of {stand.task} failed for good ({stand.reason or 'resolved'}) after {attempts}"
    return JobFailed(
        f"{what}: {said}" if said else what,
        job_id=stand.id, task=stand.task, reason=stand.reason or "", code=stand.code, error_type=stand.error_type,
        error_message=stand.message, attempts=stand.attempt,
    )  # fmt: skip


def _decoded(stand: Stand, raw: str, catalog: Catalog) -> Any:
    spec = catalog.get(stand.task)
    who = f"job {stand.id} of {stand.task} succeeded, and its result"
    try:
        return _of_unknown_task(raw) if spec is None else spec.signature.decode_result(raw)
    except InvalidArguments as error:
        unknown = f" (this app does not know the task {stand.task!r})" if spec is None else ""
        said = f"{who} cannot be read{unknown}: {error.message}"
    except Exception as error:  # noqa: BLE001  classes of the user validate here, and raise what they like
        said = f"{who} does not fit the type that the task declares now: {_first_line(error)}"
    raise ResultMismatch(f"{said}. It stands in `raw` of this error, as it is stored", raw=raw)


def _of_unknown_task(raw: str) -> Any:
    """The result of a task that this app does not know: plain and tagged values come back, classes do not."""
    from jobwell.core.envelope import decode

    return decode(raw, {})


def _first_line(error: Exception) -> str:
    errors = getattr(error, "errors", None)
    if callable(errors):  # pydantic's; its text shows the value, which may be nobody's business in a log
        with contextlib.suppress(Exception):
            first = errors(include_url=False, include_input=False)[0]
            return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
    return f"{type(error).__name__}: {error}".splitlines()[0]


def identify(job: UUID | str) -> UUID:
    """The id, also as a web request brings it.

    Raises:
        NotFound: it is none.
    """
    if isinstance(job, UUID):
        return job
    try:
        return UUID(job)
    except (ValueError, TypeError, AttributeError):
        raise NotFound(f"{job!r} is not a job id") from None


def _waiting(client: "Client", jobs: Jobs, timeout: Duration, *, gather: bool) -> Waiting:
    transactions.refuse_waiting()
    wanted = [(job.id, job.task) if isinstance(job, Handle) else (identify(job), "") for job in jobs]
    return Waiting(wanted, client.catalog, seconds(timeout, "timeout"), time.monotonic(), gather=gather)


def wait(client: "Client", jobs: Jobs, limit: Duration, *, gather: bool = False) -> list[Any]:
    """Block until all of them have ended.

    Raises:
        ResultError: where an event loop runs in this thread.
    """
    _refuse_on_loop()
    waiting = _waiting(client, jobs, limit, gather=gather)
    while True:
        for ids in waiting.pieces():
            with client.connections.plain() as own:
                found = run(own, results.look(client.statements, ids))
            waiting.take(ids, found)
        rest = waiting.rest(time.monotonic())
        if rest is None:
            return waiting.values()
        time.sleep(rest)


async def await_all(client: "Client", jobs: Jobs, limit: Duration, *, gather: bool = False) -> list[Any]:
    """As `wait`, for async code."""
    waiting = _waiting(client, jobs, limit, gather=gather)
    while True:
        for ids in waiting.pieces():
            async with client.connections.of_loop() as own:
                found = await arun(own, results.look(client.statements, ids))
            waiting.take(ids, found)
        rest = waiting.rest(time.monotonic())
        if rest is None:
            return waiting.values()
        await asyncio.sleep(rest)


def _refuse_on_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ResultError(
        "waiting here would block the running event loop, and everything else on it: write `await handle.aresult(…)`, or"
        " `await app.aresults(…)` for many. The job is as it was"
    )

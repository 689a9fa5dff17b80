"""A job by hand, from a URL alone: the tasks are those that workers have published."""

from collections.abc import Mapping
from typing import Any

import orjson

from jobwell.core import published
from jobwell.core.errors import NOT_ENQUEUED, Duplicate, NotFound
from jobwell.core.job import NewJob, Options
from jobwell.core.task import TaskSpec
from jobwell.store import audit, catalog, dedup
from jobwell.store.database import Database
from jobwell.store.jobs import insert
from jobwell.store.statements import Program, Statements, run


def known(database: Database, task: str) -> published.Published:
    """A task as its workers have published it.

    Raises:
        NotFound: nobody has; the sentence names the nearest.
    """
    return database.run(catalog.one(database.statements, task))


def check_queue(database: Database, queue: str) -> None:
    """Refuse a queue that nobody serves or names: the job would wait for ever.

    Raises:
        NotFound: with those that there are.
    """
    there = database.run(catalog.queues(database.statements))
    if queue not in there:
        raise NotFound(f"no worker serves a queue {queue!r}, and no task names it; there are {', '.join(there) or 'none yet'}")


def with_code(spec: TaskSpec, named: Mapping[str, Any]) -> dict[str, Any]:
    """Plain JSON as the values that the task's own code would pass.

    Raises:
        InvalidArguments: it does not fit the signature; the message names the path.
    """
    stored = orjson.dumps({name: published.stored_form(value, name) for name, value in named.items()})
    return spec.signature.decode(stored.decode(), NOT_ENQUEUED)


def enqueue(database: Database, job: NewJob, options: Options, *, by: str) -> dedup.Stands:
    """Store a job with its audit row, in one commit; or find the one that stands for it (`Dedup`).

    Raises:
        Duplicate: an equal job is there, and the task refuses a second one. That is counted.
        StoreUnavailable: the database cannot be reached. Where the answer to the commit was lost the job may be there.
    """
    statements = database.statements
    meta = orjson.dumps({"initiator": by}).decode()
    detail = {"task": job.task, "queue": job.queue, "run_after": options.run_after, "bytes": job.size}
    with database.connect("actions") as conn, database.telling():
        try:
            with conn.transaction():
                found = run(conn, _stored(statements, job, meta))
                detail |= {} if found.created else {"outcome": found.outcome}
                run(conn, audit.record(statements, actor=by, action="jobs.enqueue", target=str(found.id), detail=detail))
        except Duplicate as error:
            run(conn, dedup.count_refused(statements, error))
            raise
    return found


def _stored(statements: Statements, job: NewJob, meta: str) -> Program[dedup.Stands]:
    if job.dedup is not None:
        return (yield from dedup.put(statements, [job], meta))[0]
    yield from insert(statements, [job], meta)
    return dedup.Stands(job.id, job.task)

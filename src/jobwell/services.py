"""The composition root: builds workers from an App."""

import asyncio
import difflib
import logging
import os
import socket
import sys
from collections.abc import Sequence
from uuid import UUID

from jobwell.app import App
from jobwell.core.errors import JobwellError, SettingsError
from jobwell.core.pools import EVERYTHING
from jobwell.runtime import signals
from jobwell.settings import Settings
from jobwell.store import migrations
from jobwell.store.database import Database, check_fitness
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs
from jobwell.worker.housekeeping.rescue import CRASHES_BOUND, LOSSES_BOUND, PIECE
from jobwell.worker.loading import load_app
from jobwell.worker.supervisor import Supervisor
from jobwell.worker.worker import Worker

log = logging.getLogger("jobwell.supervisor")

__all__ = ["load_app", "run_worker", "supervise", "take_back"]


def run_worker(app: App, *, queues: Sequence[str] = (), slots: int | None = None, worker: UUID | None = None) -> int:
    """Run one worker in this process until SIGTERM or SIGINT. A store that is away, or full, is waited for.

    Returns:
        The exit code: 0 drained, 3 the lease was lost, 4 to 7 as docs/operations.md says.

    Raises:
        JobwellError: it cannot start; nothing was claimed.
    """
    app.load()
    if not len(app.catalog):
        raise SettingsError("the app declares no tasks; a worker would have nothing to do")
    pooled = [queue for pool in app.settings.pools for queue in pool.queues if queue != EVERYTHING]
    for queue in queues or app.settings.queues or pooled:
        if queue not in app.queues:
            near = difflib.get_close_matches(queue, app.queues, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise SettingsError(f"the app declares no queue {queue!r}{hint} Declared are {', '.join(app.queues)}")

    def fit() -> None:
        with app.database.connect("worker") as conn, app.database.telling():
            migrations.check(conn, app.settings.schema)
            check_fitness(conn, app.database.statements)

    async def live() -> int:
        made = Worker(app, queues=queues, slots=slots, id=worker, fit=fit)
        loop = asyncio.get_running_loop()
        signals.on_stop(loop, made.stop)
        if os.environ.get("JOBWELL_CHILD"):
            signals.on_end_of(sys.stdin.fileno(), loop, made.stop)
        log.info("worker %s serves %s with %d slots", made.id, ", ".join(made.queues), made.slots)
        with app.database.telling():  # at the start: later each loop looks after its own errors
            code = await made.run()
        if os.environ.get("JOBWELL_CHILD"):
            # Everything is handed back. A job that swallows its cancellation, or a thread that is stuck, must not keep the
            # process: it would live on as a zombie in the place of its successor.
            logging.shutdown()
            os._exit(code)
        return code

    if sys.platform == "win32":
        return asyncio.run(live())
    import uvloop

    return uvloop.run(live())


def supervise(settings: Settings, target: str, *, processes: int, options: Sequence[str] = (), url: str | None = None) -> int:
    """Run worker processes under a supervisor, until a signal.

    Args:
        settings: for the grace, and the store to tell of a death.
        target: the app, as `load_app` takes it; imported in the children only.
        processes: how many.
        options: command line options passed on to each child.
        url: a database URL that goes before what the app says.
    """
    from jobwell.runtime.health import Health  # loads a web server, which the workers do not need

    database = Database(settings)

    def command(worker: UUID) -> Sequence[str]:
        return [sys.executable, "-m", "jobwell", "worker", target, "--child", str(worker), *options]

    def died(worker: UUID, how: str | None) -> None:
        try:
            take_back(database, worker, how)
        except JobwellError as error:  # the lease ends by itself
            log.warning("the jobs of the dead process wait for the end of its lease: %s", error)

    verbs = WorkerVerbs(database.statements)

    def renew(worker: UUID) -> None:
        try:
            database.run(verbs.renew_for(worker, lease=settings.lease), "supervisor")
        except JobwellError as error:
            log.warning("the lease of a silent process could not be renewed: %s", error)

    environ = {"JOBWELL_CHILD_URL": url} if url else {}
    made = Supervisor(command, processes, settings.grace, died, environ, lease=settings.lease, renew=renew, hang=settings.hang)
    health = Health(settings.health, made.report) if settings.health else None
    try:
        return made.run()
    finally:
        if health is not None:
            health.close()


def take_back(database: Database, worker: UUID, how: str | None) -> None:
    """The process of a worker was seen to die: its jobs need not wait for the end of the lease.

    Args:
        database: the store.
        worker: whose process.
        how: the signal or the exit code; what it ran is suspect then. None: it ended by itself, and nothing is.
    """
    verbs = WorkerVerbs(database.statements)
    with database.connect("supervisor") as conn, database.telling():
        told = f"the worker's process {how} on {socket.gethostname()}"
        suspects = run(conn, verbs.suspect(worker, how=told, bound=CRASHES_BOUND)) if how is not None else 0
        if suspects:
            log.warning("%d job(s) of the dead process are suspect; each runs alone next time", suspects)
        run(conn, verbs.expire(worker))
        while run(conn, verbs.rescue(limit=PIECE, bound=LOSSES_BOUND)) >= PIECE:
            pass

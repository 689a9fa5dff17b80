"""What lies between here and the server, found by trying: for people who ask."""

from dataclasses import dataclass
from uuid import UUID

from jobwell.core.errors import StoreError
from jobwell.core.ids import new_id
from jobwell.store.database import Database
from jobwell.store.statements import run
from jobwell.store.wire import PlainConnection
from jobwell.store.workers import WorkerVerbs

HEARD_WITHIN = 1.0


@dataclass(frozen=True)
class Path:
    """How connections reach the server.

    Attributes:
        pooled: the database URL leads through a pooler.
        wakeups: 'notify' when a notification came back over the connection that would listen, else 'poll'.
        why: the reason for 'poll', with what to do; empty otherwise.
    """

    pooled: bool
    wakeups: str
    why: str


def probe(database: Database) -> Path:
    """Try it with two connections, as a worker does.

    Raises:
        StoreError: the server cannot be reached by the database URL, or not be used.
    """
    with database.connect("doctor") as ordinary, database.telling():
        pooled = database.settings.pooler == "transaction" or (
            database.settings.pooler == "auto" and database.is_pooled(ordinary)
        )
        try:
            why = _deaf(database, WorkerVerbs(database.statements), new_id(), ordinary, pooled=pooled)
        except StoreError as error:
            if not database.settings.direct_url:
                raise
            why = f"direct_url does not work: {error.message}"
    return Path(pooled, "poll" if why else "notify", why)


def _deaf(database: Database, workers: WorkerVerbs, me: UUID, ordinary: PlainConnection, *, pooled: bool) -> str:
    settings = database.settings
    advice = "set direct_url (JOBWELL_DIRECT_URL) to the server past the pooler"
    if pooled and not settings.direct_url:
        return f"database_url leads through a pooler, which brings no notifications; {advice}"
    with database.connect("doctor", direct=True) as listener, database.telling():
        if settings.pooler != "none" and database.is_pooled(listener):
            return f"direct_url leads through a pooler itself; {advice}"
        listener.execute(database.statements.listen_to(me))
        run(ordinary, workers.echo(me, "heard"))
        heard = [note.payload for note in listener.notifies(timeout=HEARD_WITHIN, stop_after=1)]
    return "" if heard else f"a notification did not come back over the connection that listens; {advice}"

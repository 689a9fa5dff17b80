"""The store moves to another server."""

from collections.abc import Callable
from dataclasses import replace

from jobwell.settings import check_url
from jobwell.store.database import Database
from jobwell.store.move import Move, Step


def move(source: Database, to: str, *, by: str, told: Callable[[Step], None] = lambda _: None) -> dict[str, int]:
    """Move a store, and close the old one. Audited on the target.

    Args:
        source: the store as it is.
        to: the URL of the other server or database, or "embedded".
        by: who acts.
        told: called as it goes on.

    Returns:
        The rows of each table; empty where an earlier move had only to be ended.

    Raises:
        SettingsError: the URL is none.
        Conflict: workers live, somebody writes, or the target holds jobs. Nothing was changed.
        StoreError: a server cannot be reached or does not fit. The source is as it was.
    """
    check_url(to, "--to")
    target = Database(replace(source.settings, database_url=to, direct_url=""))
    return Move(source, target, by=by, told=told).run()

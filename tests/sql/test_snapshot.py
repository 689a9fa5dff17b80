"""The migrated schema is the committed one."""

import difflib
from typing import Any

from psycopg import Connection

from jobwell.store.migrations import migrate
from tests.sql.conftest import Fresh
from tests.sql.snapshot import FILE, REWRITE, describe


def test_the_migrated_schema_is_the_committed_one(fresh: Fresh, server: Connection[Any]) -> None:
    database = fresh()
    migrate(database)
    committed, found = FILE.read_text(encoding="utf-8"), describe(server, database.settings.schema)
    diff = "\n".join(difflib.unified_diff(committed.splitlines(), found.splitlines(), "committed", "migrated", lineterm=""))
    assert not diff, f"the schema has changed; if that is meant, run `{REWRITE}` and commit the file\n{diff}"


def test_the_snapshot_tells_a_change(fresh: Fresh, server: Connection[Any]) -> None:
    """The comparison itself can fail: each of these would go through unseen otherwise."""
    database = fresh()
    migrate(database)
    schema = database.settings.schema
    for change in (
        "alter table {}.jobs add column more int", "drop index {}.jobs_due", "alter table {}.jobs alter column rank drop not null",
        "alter table {}.jobs reset (autovacuum_vacuum_threshold)", "alter function {}.claim reset enable_seqscan",
        "alter table {}.quarantine drop constraint quarantine_reason_check", "alter table {}.payloads alter column args set storage plain",
        "create table {}.more (id int)", "drop function {}.wake",
    ):  # fmt: skip
        before = describe(server, schema)
        server.execute(change.format(schema))  # type: ignore[call-overload]
        assert describe(server, schema) != before, change

"""The README's example runs, word for word."""

import re
from pathlib import Path

import psycopg
import pytest

from jobwell import App

README = Path(__file__).parents[2] / "README.md"


def example() -> str:
    found = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found.group(1)


def test_example_commits_and_vanishes_with_the_callers_row(
    app: App, conn: "psycopg.Connection[tuple[object, ...]]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBWELL_DATABASE_URL", app.settings.url)
    monkeypatch.setenv("JOBWELL_SCHEMA", app.settings.schema)
    names: dict[str, object] = {"__name__": "readme"}
    exec(compile(example(), "README.md", "exec"), names)  # this is the test
    hire = names["hire"]
    assert callable(hire)
    conn.execute("create temporary table employees (id integer)")
    with conn.transaction():
        hire(conn, 7)
    with conn.transaction(force_rollback=True):
        hire(conn, 8)
    jobs = conn.execute(f"select task, tenant, args->>'employee_id' from {app.settings.schema}.jobs").fetchall()
    assert jobs == [("readme.notify", "finance", "7")]
    own = names["app"]
    assert isinstance(own, App)
    own.close()

"""The examples of docs/breakers.md: the code declares what the page says, and each command does something."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from jobwell.cli import main
from jobwell.store import breakers
from jobwell.store.statements import run

PAGE = (Path(__file__).parents[2] / "docs" / "breakers.md").read_text(encoding="utf-8")


def test_code_and_commands(app: Any, monkeypatch: pytest.MonkeyPatch, conn: "Connection[Any]") -> None:
    monkeypatch.setenv("JOBWELL_DATABASE_URL", app.settings.url)
    monkeypatch.setenv("JOBWELL_SCHEMA", app.settings.schema)
    names: dict[str, Any] = {"__name__": "breakers_page"}
    exec(
        compile("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), "breakers.md", "exec"), names
    )  # this is the test
    made = names["app"]
    assert {name: guard.budget for name, guard in made.guards.items()} == {"sms-gateway": 0.2, "smtp": None}
    assert {spec.name for spec in made.catalog} == {"sms.send", "mail.send", "sms.urgent"}
    assert [row.concurrency for row in made.limits_declared()] == [5, None]
    run(conn, breakers.declare(made.database.statements, made.guards))
    commands = [shlex.split(line)[1:] for line in re.findall(r"^    (jobwell .*)$", PAGE, re.MULTILINE)]
    assert len(commands) == 4
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 0, command
    done = [row[0] for row in conn.execute("select action from audit order by at, id").fetchall()]
    assert done == ["breakers.open", "breakers.close"]

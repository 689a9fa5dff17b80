"""The examples of docs/limits-and-rates.md: the code declares what the page says, and each command does something."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, Rate
from jobwell.cli import main
from jobwell.core.ids import new_id
from jobwell.store import limits
from jobwell.store.statements import run

PAGE = (Path(__file__).parents[2] / "docs" / "limits-and-rates.md").read_text(encoding="utf-8")


@pytest.fixture
def declared(app: App, monkeypatch: pytest.MonkeyPatch) -> App:
    """The app of the page, on the test's schema."""
    monkeypatch.setenv("JOBWELL_DATABASE_URL", app.settings.url)
    monkeypatch.setenv("JOBWELL_SCHEMA", app.settings.schema)
    names: dict[str, Any] = {"__name__": "limits_and_rates"}
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "limits-and-rates.md", "exec"), names)  # this is the test
    made = names["app"]
    assert isinstance(made, App)
    return made


def test_the_code_declares_what_the_page_says(declared: App) -> None:
    rows = {(row.kind, row.name, row.per): row for row in declared.limits_declared()}
    assert [(key, row.concurrency, [str(rate) for rate in row.rates], row.weight) for key, row in rows.items()] == [
        (("resource", "sms-gateway", "fleet"), 5, ["10/s", "300/min"], None), (("resource", "hr-database", "fleet"), 20, [], None),
        (("resource", "hr-database", "host"), 4, [], None), (("queue", "reports", "fleet"), 4, [], None),
        (("task", "payroll.close", "fleet"), 1, [], None), (("task", "sms.send", "tenant"), None, ["1/s"], None),
        (("tenant", "acme", "fleet"), 200, [], 5), (("tenant", "bolt", "fleet"), None, [], 2), (("tenant", "*", "fleet"), 50, [], 1),
    ]  # fmt: skip


def test_the_figures_of_a_rate() -> None:
    usual, burst = Rate(300, 60), Rate(300, 60, burst=50)
    assert usual.every == pytest.approx(60 * 1.04 / 300)
    assert int(usual.slack / usual.every) + 1 == 5 == int(1 + 0.0144 * 300)
    assert burst.every == pytest.approx(60 * 1.025 / 251)
    assert round(burst.slack / burst.every) + 1 == 50


def test_each_command_works(declared: App, conn: "Connection[Any]", capsys: pytest.CaptureFixture[str]) -> None:
    run(conn, limits.publish(declared.database.statements, new_id(), declared.catalog, declared.limits_declared()))
    commands = [shlex.split(line)[1:] for line in re.findall(r"^    (jobwell .*)$", PAGE, re.MULTILINE)]
    assert len(commands) == 9
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 0, (command, capsys.readouterr().err)
    done = [row[0] for row in conn.execute("select action from audit order by at, id").fetchall()]
    assert done == ["limits.set", "limits.set", "limits.clear", "tasks.pause", "tasks.resume"]
    declared.close()

"""The examples of docs/pressure.md run."""

import re
from functools import partial
from pathlib import Path
from typing import Any

from psycopg import Connection

import jobwell
from jobwell import App

PAGE = (Path(__file__).parents[2] / "docs" / "pressure.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_examples_run(app: App, conn: Connection[Any]) -> None:
    @app.task(name="remind")
    def remind(employee: int) -> None: ...

    made = partial(App, app.settings.url, schema=app.settings.schema)
    known: dict[str, Any] = {"app": app, "remind": remind, "ids": range(60), "App": made, "Queue": jobwell.Queue}
    assert len(EXAMPLES) == 2
    for example in EXAMPLES:
        exec(example, known)
    assert conn.execute("select max(run_at) - min(run_at) = interval '590 seconds' from jobs").fetchone() == (True,)
    assert known["app"].pressure("bulk").length == 0
    known["app"].close()

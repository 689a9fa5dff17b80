"""The examples of docs/runs.md run."""

import re
from pathlib import Path
from typing import Any

from jobwell import App
from jobwell.testing import Testbed

PAGE = (Path(__file__).parents[2] / "docs" / "runs.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_examples_run(app: App, bed: Testbed) -> None:
    known: dict[str, Any] = {"app": app}
    assert len(EXAMPLES) == 3
    exec(EXAMPLES[0], known)
    bed.drain()
    card = known["run"].status()
    assert (card.status, card["apply"].done, card["apply"].failed, card["notify"].done) == ("completed_with_errors", 1, 1, 1)
    exec(EXAMPLES[1], known)
    bed.drain()
    assert known["run"].errors()[0].attempt == 2
    exec(EXAMPLES[2], known)
    run = known["mass"].start(items=[{"employee_id": number, "department": "Sales"} for number in range(120)])
    bed.drain()
    assert run.status().status == "completed"

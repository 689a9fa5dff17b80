"""A producer pays little for `import jobwell`: no driver, no validation library, no command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

HEAVY = ("click", "psycopg", "psycopg_pool", "pydantic", "rich", "uvloop")
MILLISECONDS = 150
PROGRAM = f"""
import time
began = time.process_time()  # not by the clock on the wall: other tests run beside this one
import jobwell
app = jobwell.App("postgresql://nobody@nowhere.example/jobs")

@app.task
def notify(employee_id: int, words: list[str]) -> None: ...

took = (time.process_time() - began) * 1000
import json, sys
sys.stdout.write(json.dumps([took, [name for name in {HEAVY!r} if name in sys.modules]]))
"""


def test_a_declaration_is_light(tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(PROGRAM, encoding="utf-8")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("JOBWELL_", "COV", "PYTHON"))}
    best = float("inf")
    for _ in range(5):
        ran = subprocess.run(
            [sys.executable, str(program)], cwd=tmp_path, env=environ, check=True, capture_output=True, text=True
        )
        took, loaded = json.loads(ran.stdout)
        assert not loaded, f"`import jobwell; App(…); @app.task` imports {loaded}"
        best = min(best, took)
    assert best <= MILLISECONDS, f"`import jobwell; App(…); @app.task` takes {best:.0f} ms; at most {MILLISECONDS}"

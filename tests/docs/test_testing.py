"""The examples of docs/testing.md run, word for word, as a newcomer's project."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_examples(tmp_path: Path, database_url: str) -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    app, *tests = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(tests) == 3
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "jobs.py").write_text(app, encoding="utf-8")
    found = re.search(r"    (\[tool\.pytest\.ini_options\])\n    (jobwell_app = .*)\n", page)
    assert found is not None
    (tmp_path / "pyproject.toml").write_text("\n".join(found.groups()), encoding="utf-8")
    for number, text in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(text, encoding="utf-8")
    environ = {**os.environ, "JOBWELL_TEST_DATABASE_URL": database_url, "PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *_plugin()]
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=100)
    assert "6 passed" in ran.stdout, ran.stdout + ran.stderr


def _plugin() -> list[str]:
    """Where this release is not installed, its entry point is not found."""
    from importlib.metadata import entry_points

    installed = any(point.value == "pytest_jobwell" for point in entry_points(group="pytest11"))
    return [] if installed else ["-p", "pytest_jobwell"]

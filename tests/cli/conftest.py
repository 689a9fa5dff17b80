"""The command line as its user calls it: a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobwell import App


@dataclass
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Said]


def call(arguments: tuple[str, ...], environ: dict[str, str], cwd: Path) -> Said:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBWELL_")}
    done = subprocess.run(
        [sys.executable, "-m", "jobwell", *arguments],
        env={**clean, "COLUMNS": "200", **environ}, cwd=cwd, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return Said(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def cli(app: App, tmp_path: Path) -> Cli:
    """Call the command line on the test's schema."""
    environ = {"JOBWELL_DATABASE_URL": app.settings.url, "JOBWELL_SCHEMA": app.settings.schema}
    return lambda *arguments, **more: call(arguments, environ | more, tmp_path)


@pytest.fixture
def bare(tmp_path: Path) -> Cli:
    """Call it with nothing set."""
    return lambda *arguments, **more: call(arguments, more, tmp_path)

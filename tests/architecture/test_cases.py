"""docs/cases.md: each test that it names exists, and each case that a test names stands there."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.architecture.helpers import ROOT, report

PAGE = ROOT / "docs" / "cases.md"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
CASE = re.compile(r"\b[A-L]\d{1,2}\b")
SAYS = re.compile(r"\b[Cc]ases? ((?:[A-L]\d{1,2}(?:, | and )?)+)")


@cache
def _tests(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_each_test_that_is_named_exists() -> None:
    named = NAMED.findall(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 50
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (path := ROOT / "tests" / file).is_file() or name not in _tests(path) or not name.startswith("test_")
    ]
    report(missing, "docs/cases.md names tests that are not there.")


def test_each_case_that_a_test_names_stands_on_the_page() -> None:
    rows = {line.split("|")[1].strip() for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")}
    missing = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        found = {case for said in SAYS.findall(path.read_text(encoding="utf-8")) for case in CASE.findall(said)}
        missing += [f"{path.relative_to(ROOT)}: {case}" for case in sorted(found - rows)]
    report(missing, "Cases that tests name, without a row in docs/cases.md.")

"""docs/guarantees.md: each cell of its table is held by a test that exists."""

from itertools import takewhile

from tests.architecture.helpers import ROOT, report
from tests.architecture.test_cases import NAMED, _tests

PAGE = ROOT / "docs" / "guarantees.md"


def _table(first: str) -> list[list[str]]:
    """The cells of the table whose heading begins so, without its line of dashes."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(first))
    rows = list(takewhile(lambda line: line.startswith("|"), lines[at:]))
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in (rows[0], *rows[2:])]


def test_each_cell_is_proven_by_a_test_that_exists() -> None:
    (_, *faults), *rows = _table("| facility | producer dies |")
    proofs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for facility, fault, proven in _table("| facility | fault |")[1:]:
        proofs.setdefault((facility, fault), []).extend(NAMED.findall(proven))
    cells = {(row[0], fault): said for row in rows for fault, said in zip(faults, row[1:], strict=True)}
    assert len(cells) > 80
    problems = [f"{cell}: {said!r} has no test" for cell, said in cells.items() if said != "—" and not proofs.get(cell)]
    problems += [f"{cell}: proven, and no cell says so" for cell in proofs if cells.get(cell, "—") == "—"]
    problems += [
        f"{cell}: there is no {file}::{name}"
        for cell, named in proofs.items()
        for file, name in named
        if not (path := ROOT / "tests" / file).is_file() or name not in _tests(path)
    ]
    report(problems, "docs/guarantees.md: cells and their tests.")

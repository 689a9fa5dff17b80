"""Reports on runs: lists that come in pages, and pages that run nothing."""

import csv
import io
import re
import tracemalloc
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import openpyxl
import pytest
from psycopg import Connection

from jobwell import App
from jobwell.actions import run_report as actions
from jobwell.core.run_report import RunReport
from jobwell.core.runs import Card, Pace, StageCard
from jobwell.reports import run_page, run_sheets
from jobwell.store import run_reports
from jobwell.testing import Testbed
from tests.runs.conftest import Transfer, declare, people

NOW = datetime(2030, 1, 28, 12, 0, tzinfo=UTC)
ALMATY = timezone(timedelta(hours=5))


def stage(name: str, **given: Any) -> StageCard:
    empty = dict.fromkeys(("done", "failed", "skipped", "cancelled", "open", "running", "accepted", "delivered", "bounced"), 0)
    times = {"after": None, "total": 100, "percent": 100.0, "speed": None, "remaining": 0.0, "ended": True}
    return StageCard(name=name, **(empty | times | given))


def card(**given: Any) -> Card:
    usual: dict[str, Any] = {
        "id": UUID(int=7), "operation": "hr.transfer", "key": "k", "status": "completed_with_errors", "sealed": True, "total": 100,
        "expected": None, "duplicates": 0, "bad_rows": 0, "stages": (stage("apply", done=98, failed=2),), "parts": (),
        "percent": 100.0, "errors": 2, "speed": None, "remaining": None, "ends_at": None, "canary": False, "started_by": "olga",
        "by": "olga", "why": None, "created_at": NOW, "started_at": NOW, "ended_at": NOW + timedelta(seconds=60),
    }  # fmt: skip
    return Card(**(usual | given))


def report(**given: Any) -> RunReport:
    usual: dict[str, Any] = {
        "card": card(), "pace": Pace(NOW, NOW + timedelta(seconds=60), {"apply": (60, 40)}, (0, 2)), "made_at": NOW,
        "reasons": [("apply", "locked", 2)],
    }  # fmt: skip
    return RunReport(**(usual | given))


def test_the_sentence() -> None:
    assert report().sentence() == (
        "hr.transfer k is completed with errors: 100 items; apply 98 done, 2 failed. Why items failed: 2 locked. It took 1m."
    )
    many = [("apply", f"c{number}", 1) for number in range(5)]
    found = report(card=card(bad_rows=1, ended_at=None, status="running"), reasons=many).sentence()
    assert found.endswith("1 c0, 1 c1, 1 c2 and 2 more reasons. 1 row of the input did not fit.")


def test_the_page_draws_what_was_counted_and_runs_nothing() -> None:
    evil = report(
        card=card(operation='<script>alert("x")</script>', why='"><img src=x>', parts=()),
        reasons=[("apply", "</svg><script>", 2), ("apply", None, 1)],
    )
    page = "".join(run_page.page(evil, ALMATY))
    assert "<script" not in page
    assert "<img" not in page
    assert not re.search(r"<[^>]*(src|href)=|https?://|url\(|@import", page)
    assert "2030-01-28 17:00:00" in page
    heights = {
        kind: float(height)
        for kind, height in re.findall(r'<rect class="(\w+)" x="5?[\d.]+" y="[\d.]+" width="[\d.]+" height="([\d.]+)"', page)
    }
    assert set(heights) >= {"c0", "fail"}
    assert page.count('class="fail"') == 4  # in the second slice, in the legend, and two reasons
    quiet = "".join(run_page.page(report(pace=Pace(NOW, NOW, {}, ()), reasons=[]), None))
    assert "<svg" not in quiet


def test_pages_of_items_follow_each_other_without_gap_or_double(
    app: App, bed: Testbed, conn: "Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_reports, "PAGE", 7)
    office = declare(app)
    office.fails, office.skips, office.mail_fails = {2, 9, 20}, {4}, {5, 6}
    run = office.operation.start(Transfer(to="Astana"), items=people(25))
    bed.drain("bulk")
    open_ones = [row["states"]["notify"] for row in run_reports.results(app.database, run.id)]
    assert open_ones.count("open") == 21
    assert open_ones.count("") == 4
    bed.drain()
    rows = list(run_reports.results(app.database, run.id))
    assert [row["key"] for row in rows] == [str(number) for number in range(1, 26)]
    assert [row["key"] for row in rows if row["states"]["apply"] == "failed"] == ["2", "9", "20"]
    assert (rows[3]["states"], rows[3]["message"]) == ({"apply": "skipped", "notify": ""}, "there already")
    errors = list(run_reports.errors(app.database, run.id))
    assert [one.key for one in errors] == ["2", "9", "20", "5", "6"]
    assert [one.key for one in run_reports.errors(app.database, run.id, limit=4)] == ["2", "9", "20", "5"]
    found = actions.find(app.database, run.id)
    assert sum(found.pace.ended["apply"]) == 25
    assert sum(found.pace.ended["notify"]) == 21
    assert sum(found.pace.failed) == 5
    file = io.BytesIO()
    actions.write(app.database, found, "xlsx", file)
    assert openpyxl.load_workbook(file)["Items"].max_row == 26


def test_lists_are_text_for_a_spreadsheet() -> None:
    evil = ["=1+1", "+1", " -2", "@x", "\tx", "a\x1b[2J", 12, 1.5, True, None, {"a": "="}]
    text = "".join(run_sheets.lines(["=head"], [evil]))
    (head,), row = csv.reader(io.StringIO(text))
    assert head == "'=head"
    assert row == ["'=1+1", "'+1", "' -2", "'@x", "'\tx", "a�[2J", "12", "1.5", "true", "", '{"a":"="}']
    file = io.BytesIO()
    run_sheets.write(None, [("List", ["x"], [["=1+1", 10**16, 7]])], None, file)
    cells = openpyxl.load_workbook(file)["List"][2]
    assert [(cell.value, cell.data_type) for cell in cells] == [("=1+1", "s"), ("10000000000000000", "s"), (7, "n")]


def test_a_sheet_that_is_full_goes_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_sheets, "ROWS", 3)
    file = io.BytesIO()
    run_sheets.write(None, [("List", ["n"], ([number] for number in range(7)))], None, file)
    book = openpyxl.load_workbook(file)
    assert book.sheetnames == ["List", "List 2", "List 3"]
    assert [row[0].value for name in book.sheetnames for row in book[name].iter_rows(min_row=2)] == list(range(7))


def test_a_long_list_takes_the_memory_of_a_piece() -> None:
    tracemalloc.start()
    try:
        size = sum(len(piece) for piece in run_sheets.lines(["n", "text"], ([number, "x" * 100] for number in range(100_000))))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 10_000_000
    assert peak < 2_000_000

"""`quarantine report` and the timeline of `jobs show`, as their user calls them."""

import io
from pathlib import Path

import openpyxl
import pytest

from jobwell import App, SettingsError
from jobwell.reports import workbook
from tests.cli.conftest import Cli
from tests.cli.test_seeing import Conn, declare, work_off


def test_a_report_is_printed_written_and_retried(app: App, conn: Conn, cli: Cli, tmp_path: Path) -> None:
    _, bad = declare(app)
    rejected = bad.enqueue(0, "north")
    for number in (1, 2, 3):
        bad.enqueue(number, "south")
    work_off(app, conn)
    said = cli("quarantine", "report", "--zone", "Asia/Almaty")
    assert said.code == 0
    assert said.out.startswith("4 failed since ")
    assert "3 out of attempts (ValueError), 1 no such thing (code no_such_thing), in 2 branches" in said.out.splitlines()[0]
    data = cli("quarantine", "report", "--code", "no_such_thing", "-f", "json").json
    assert [job["id"] for job in data["jobs"]] == [str(rejected.id)]
    assert "\x1b[2J" not in said.out + cli("quarantine", "report", "-f", "html").out
    written = cli("quarantine", "report", "-f", "xlsx", "--out", "failed.xlsx", "--group-by", "tenant")
    assert "4 failed since" in written.out
    assert [path.name for path in tmp_path.iterdir()] == ["failed.xlsx"]
    book = openpyxl.load_workbook(io.BytesIO((tmp_path / "failed.xlsx").read_bytes()))
    assert [cell.value for cell in book["Summary"]["A"][4:]] == ["south", "north"]
    (group,) = data["groups"]
    ids = cli(*group["retry"].split(" | ")[0].removeprefix("jobwell ").replace("'", "").split()).out.split()
    assert ids == [str(rejected.id)]
    assert cli("quarantine", "retry", *ids).code == 0
    assert cli("quarantine", "report", "--limit", "1").err.startswith("… and 2 more")
    name = cli("quarantine", "groups", "-o", "json").json[0]["group"]
    assert cli("quarantine", "report", "--group", name[:6], "-f", "json").json["total"] == 3


def test_wrong_use_is_one_sentence(cli: Cli) -> None:
    assert "no time zone" in cli("quarantine", "report", "--zone", "Mars/Olympus").err
    assert cli("quarantine", "report", "--group-by", "colour").code == 2
    assert cli("quarantine", "report", "--fingerprint", "ffff").code == 3
    assert cli("quarantine", "report", "--owner", "nobody").code == 3
    nameless = cli("quarantine", "report", "--out", "")
    assert (nameless.code, "give the name of a file" in nameless.err) == (2, True)
    assert cli("quarantine", "report", "--task", "nobody.knows").code == 3


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbook, "find_spec", lambda _name: None)
    with pytest.raises(SettingsError, match=r"install jobwell\[reports\]"):
        workbook.check()


def test_show_tells_what_happened_step_by_step(app: App, conn: Conn, cli: Cli) -> None:
    _, bad = declare(app)
    job = bad.enqueue(0, "north")
    work_off(app, conn)
    shown = cli("jobs", "show", str(job.id))
    lines = [line.rstrip().split("  ")[-1].strip() for line in shown.out[shown.out.index("What happened") :].splitlines()]
    assert lines[2] == "enqueued into default"
    assert lines[3].startswith("attempt 1 began on ")
    assert lines[4].startswith("attempt 1 failed after ")
    assert lines[5] == "quarantine: rejected, code no_such_thing"
    events = cli("jobs", "show", str(job.id), "-o", "json").json["timeline"]
    assert [event["event"] for event in events] == ["enqueued", "began", "failed", "quarantined"]
    assert (events[2]["attempt"], events[2]["kind"], events[3]["code"]) == (1, "logical", "no_such_thing")

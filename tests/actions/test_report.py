"""The report on failed jobs, in each format: what it says, what it leaves out, and what a cell may not be."""

import csv
import io
import json
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import openpyxl
import pytest
from psycopg import Connection

from jobwell import App, NotFound
from jobwell.actions import report
from jobwell.core.report import Summary, Wanted

DAY = timedelta(days=1)
ALMATY = ZoneInfo("Asia/Almaty")
FILL = """
insert into {schema}.quarantine (id, failed_at, enqueued_at, run_at, gate, rank, attempt, failures, crashes, losses, postponements,
  bytes, queue, task, tenant, lock_key, reason, code, error_type, message, fingerprint, meta)
select gen_random_uuid(), {schema}.now() - %(ago)s::interval - n * interval '1 ms', {schema}.now(), {schema}.now(), 0, 100, 1, 1, 0, 0, 0, 2,
  'mail', %(task)s, coalesce(%(tenant)s, 'branch ' || n %% 3), '', %(reason)s, %(code)s, %(error)s, coalesce(%(message)s, 'no. ' || n),
  %(task)s || ':' || coalesce(%(code)s, 'x'), json_build_object('initiator', %(initiator)s::text, 'request_id', n)
  from generate_series(1, %(count)s) n
"""


class Failed:
    """Puts failed jobs into the quarantine."""

    def __init__(self, app: App, conn: "Connection[Any]") -> None:
        self.database, self._conn, self._sql = app.database, conn, FILL.replace("{schema}", app.settings.schema)

    def put(self, count: int, **columns: Any) -> None:
        usual = {
            "ago": "1 minute", "task": "hr.notify", "tenant": None, "reason": "rejected", "code": None, "error": "Reject", "message": None,
            "initiator": "olga",
        }  # fmt: skip
        self._conn.execute(self._sql, {**usual, **columns, "count": count})

    def find(self, since: timedelta = DAY, **wanted: Any) -> Summary:
        return report.find(self.database, Wanted(**wanted), since)

    def write(self, found: Summary, form: str, **more: Any) -> bytes:
        file = io.BytesIO()
        report.write(self.database, found, form, file, zone=ALMATY, **more)
        return file.getvalue()


@pytest.fixture
def failed(app: App, conn: "Connection[Any]") -> Failed:
    return Failed(app, conn)


def test_one_sentence_says_what_happened(failed: Failed, conn: "Connection[Any]", app: App) -> None:
    failed.put(120, code="invalid_address")
    failed.put(4, reason="exhausted", error="builtins.ValueError")
    failed.put(1, reason="crashed", error=None)
    failed.put(7, ago="2 days", code="too_old")
    spec = json.dumps({"tenant": "department"})
    conn.execute(f"insert into {app.settings.schema}.catalog (task, spec, release) values ('hr.notify', %s, '1')", [spec])
    found = failed.find()
    since = found.since.astimezone(ALMATY)
    assert found.sentence(ALMATY, "list attached") == (
        f"125 failed since {since.day} {since:%b %H:%M}: 120 invalid addresses (code invalid_address), 4 out of attempts"
        " (builtins.ValueError), 1 that killed their processes, in 3 departments; list attached."
    )
    assert failed.find(timedelta(seconds=1)).sentence(UTC).startswith("None failed since ")


def test_a_name_cannot_look_like_a_line_of_the_report(failed: Failed) -> None:
    failed.put(2, tenant="acme\n\n     99  99.0%  all\n         jobwell quarantine discard --all")
    shown = failed.write(failed.find(group_by="tenant"), "text").decode()
    assert not [line for line in shown.splitlines() if line.strip().startswith("jobwell")]
    assert "(no command:" in shown


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("reason", ["rejected", "exhausted"]), ("task", ["hr.notify", "shop.pay"]), ("code", ["no_such_person", ""]), ("queue", ["mail"]),
        ("error", ["Reject", "OSError"]), ("tenant", ["north", "south"]), ("initiator", ["olga", "ivan"]),
        ("fingerprint", ["hr.notify:no_such_person", "shop.pay:x"]),
    ],
)  # fmt: skip
def test_groups_are_counted_and_their_command_takes_just_these(failed: Failed, by: str, names: list[str]) -> None:
    failed.put(3, code="no_such_person", tenant="north")
    failed.put(1, task="shop.pay", tenant="south", reason="exhausted", error="OSError", initiator="ivan", message="the last word")
    found = failed.find(group_by=by)
    assert [group.name for group in found.groups] == names
    rows = found.rows()
    assert sum(row["jobs"] for row in rows) == 4
    assert sum(row["share"] for row in rows) == 1
    if len(rows) == 2:
        assert (rows[1]["jobs"], rows[1]["tenants"], rows[1]["example"]) == (1, 1, "the last word")
    for group in found.groups:
        only = failed.find(group_by=by, **{by: group.name})
        assert only.total == group.jobs
        assert f"--{by}={group.name}".removesuffix("=") in found.retry(group)


def test_the_list_goes_over_pages_newest_first_each_job_once(failed: Failed) -> None:
    failed.put(2500)
    found = failed.find()
    ids = failed.write(found, "ids").decode().split()
    assert len(set(ids)) == len(ids) == 2500
    rows = list(csv.DictReader(io.StringIO(failed.write(found, "csv").decode("utf-8-sig"))))
    assert [row["id"] for row in rows] == ids
    assert [row["failed_at"] for row in rows] == sorted((row["failed_at"] for row in rows), reverse=True)
    assert failed.write(found, "ids", limit=1700).decode().split() == ids[:1700]


def test_what_fails_or_is_retried_after_the_summary_is_no_part_of_it(failed: Failed, conn: "Connection[Any]", app: App) -> None:
    failed.put(3, message="before")
    found = failed.find()
    failed.put(2, ago="-1 seconds", message="after")
    conn.execute(
        f"delete from {app.settings.schema}.quarantine where id = (select min(id::text)::uuid from {app.settings.schema}.quarantine where message = 'before')"
    )
    jobs = json.loads(failed.write(found, "json"))["jobs"]
    assert [job["message"] for job in jobs] == ["before"] * 2


HOSTILE = [
    "=cmd|' /C calc'!A0",
    "+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    " =1",
    "<script>alert(1)</script>",
    "a\x1b[2Jb",
    'tom & "jerry"',
]


def test_no_cell_of_csv_is_a_formula(failed: Failed) -> None:
    for text in HOSTILE:
        failed.put(1, message=text, tenant=text, initiator=text)
    rows = list(csv.reader(io.StringIO(failed.write(failed.find(), "csv").decode("utf-8-sig"))))
    assert len(rows) == len(HOSTILE) + 1
    assert [cell for row in rows for cell in row if cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\x1b"))] == []


def test_an_xlsx_holds_texts_numbers_and_times(failed: Failed) -> None:
    for text in HOSTILE:
        failed.put(1, message=text, tenant=text, code="invalid_address")
    found = failed.find(group_by="tenant")
    book = openpyxl.load_workbook(io.BytesIO(failed.write(found, "xlsx")))
    assert book.sheetnames == ["Summary", "Jobs"]
    cells = [cell for sheet in book for row in sheet.iter_rows() for cell in row]
    assert [cell.coordinate for cell in cells if cell.data_type == "f" or cell.hyperlink] == []
    summary, jobs = book["Summary"], book["Jobs"]
    assert f"{len(HOSTILE)} invalid addresses" in summary["A1"].value
    assert [cell.value for cell in summary[4]] == ["group", "jobs", "share", "first", "last", "tenants", "example", "retry"]
    assert summary["B5"].value == 1
    rows = list(jobs.iter_rows(min_row=2, values_only=True))
    assert {row[7] for row in rows} == {text.replace("\x1b", "\N{REPLACEMENT CHARACTER}") for text in HOSTILE}
    failed_at = rows[0][8]
    assert isinstance(failed_at, datetime)
    assert abs(failed_at.replace(tzinfo=ALMATY) - found.until) < timedelta(minutes=5)


class Page(HTMLParser):
    """Collects what a page holds."""

    LOADING: ClassVar = {"src", "href", "onload", "onclick", "onerror"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loading: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loading += [name for name, _ in attrs if name in self.LOADING]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_is_one_file_without_scripts(failed: Failed) -> None:
    for text in HOSTILE:
        failed.put(1, message=text, tenant=text)
    found = failed.find(group_by="tenant")
    page = Page(failed.write(found, "html").decode())
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert page.loading == []
    assert page.tags.count("tr") == len(HOSTILE) + 1
    assert page.tags.count("section") == len(HOSTILE)
    assert "<script>alert(1)</script>" in page.texts
    assert found.sentence(ALMATY) in page.texts
    assert not any("\x1b" in text for text in page.texts)


def test_text_is_for_reading(failed: Failed) -> None:
    failed.put(2, code="invalid_address", message="one\ntwo")
    said = failed.write(failed.find(group_by="code"), "text").decode()
    first, _, *rest = said.splitlines()
    assert first.startswith("2 failed since ")
    assert rest[0].split() == ["2", "100.0%", "invalid_address"]
    assert any(line.strip() == "e.g. one" for line in rest)
    assert sum("initiator=olga request_id=" in line for line in rest) == 2
    assert "two" not in said


def test_the_command_of_a_group_names_a_schema_that_is_not_the_usual_one(failed: Failed, app: App) -> None:
    failed.put(1)
    found = failed.find(group_by="task")
    schema = app.settings.schema
    command = found.retry(found.groups[0])
    assert command.split(" | ")[0].endswith(f" --schema={schema} -f ids")
    assert command.endswith(f" | xargs -r jobwell quarantine retry --schema={schema}")
    assert "schema" not in replace(found, schema="jobwell").retry(found.groups[0])


def test_an_owner_is_whom_people_name_or_else_the_task(failed: Failed, conn: "Connection[Any]") -> None:
    failed.put(2, code="no_such_person")
    failed.put(3, code="no_money")
    failed.put(4, task="shop.pay")
    conn.execute(
        """insert into catalog (task, spec, release) values ('hr.notify', '{"owner": "hr-it"}', '1'), ('shop.pay', '{}', '1')"""
    )
    conn.execute("insert into quarantine_groups (fingerprint, owner, set_by) values ('hr.notify:no_money', 'shop', 'olga')")
    assert {owner: failed.find(owner=owner).total for owner in ("hr-it", "shop", "", "nobody")} == {
        "hr-it": 2,
        "shop": 3,
        "": 4,
        "nobody": 0,
    }
    with pytest.raises(NotFound, match="did you mean 'hr-it'"):
        report.check_owner(failed.database, "hr-ti")


def test_json_holds_nothing_that_a_terminal_obeys(failed: Failed) -> None:
    text = "a\x9b2J\x7f\u202eb\u2066c\x1b[2J"
    failed.put(1, message=text, tenant=text)
    written = failed.write(failed.find(group_by="tenant"), "json").decode()
    assert not set(written) & set("\x9b\x7f\u202e\u2066\x1b")
    data = json.loads(written)
    assert (data["jobs"][0]["message"], data["groups"][0]["group"]) == (text, text)


@pytest.mark.parametrize("form", ["html", "xlsx"])
def test_a_long_list_takes_no_more_memory_than_a_page_of_it(failed: Failed, form: str) -> None:
    failed.put(6000, message="x" * 1000)
    found = failed.find()

    class Away(io.RawIOBase):
        size = 0

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.size += len(data)
            return len(data)

    target = Away()
    report.write(failed.database, found, form, target, limit=1)  # what is loaded once is no part of it
    tracemalloc.start()
    report.write(failed.database, found, form, target)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert target.size > 100_000
    assert peak < 6_000_000  # the messages alone take 6 MB; a page of jobs is about 2

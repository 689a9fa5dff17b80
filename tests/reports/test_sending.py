"""Reports that are sent by themselves, over real SMTP and through hooks."""

import asyncio
import csv
import dataclasses
import io
import re
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from jobwell import App, DeclarationError, SettingsError
from jobwell.actions import subscriptions as actions
from jobwell.core import smtp
from jobwell.core.ids import new_id
from jobwell.reports import Attachment, Report, letter, mail
from jobwell.store.link import Link
from jobwell.worker import sender as sending
from jobwell.worker.executors.threads import Threads
from jobwell.worker.housekeeping import reports
from jobwell.worker.housekeeping import sending as services
from jobwell.worker.housekeeping.reports import EVERY, Reports
from jobwell.worker.sender import Sender
from tests.reports.conftest import Desk
from tests.reports.postbox import CERTIFICATE, PASSWORD, USER, Postbox
from tests.waiting import apause, auntil
from tests.worker.helpers import working

Service = Callable[..., Reports]


@pytest_asyncio.fixture
async def service(app: App) -> AsyncIterator[Service]:
    """Makes the service of a worker with such a way to send."""
    links: list[Link] = []
    threads = Threads(asyncio.get_running_loop())

    def make(box: Postbox | None = None, hook: Callable[[Report], Any] | None = None) -> Reports:
        links.append(Link(app.database, "test"))
        server = smtp.read(f"smtp://localhost:{box.port}?from=jobs@corp.example") if box is not None else None
        return Reports(app.database, links[-1], threads, new_id(), Sender(server, hook, threads))

    yield make
    threads.close()
    for link in links:
        await link.close()


async def rounds(service: Reports) -> int:
    """Until nothing is due; how many were looked at."""
    count = 0
    while await service.tick() != EVERY:
        count += 1
        assert count < 50
    return count


async def test_a_daily_report_is_one_mail_with_text_page_and_list(desk: Desk, postbox: Postbox, service: Service) -> None:
    desk.failed.put(3, code="invalid_address", message="no <b>such</b> mailbox")
    desk.failed.put(2, task="shop.pay", code="no_money")
    sub = desk.subscribe("a@corp.example", "b@corp.example", task="hr.notify", daily=time(8), zone="Asia/Almaty", why="the rota")
    one = service(postbox)
    assert await rounds(one) == 0  # it is not eight yet
    desk.due()
    assert await rounds(one) == 1
    (made,) = postbox.mails
    assert made["Subject"] == "3 jobs failed (task hr.notify)"
    assert (made["From"], made["To"], made["X-Recipients"]) == ("jobs@corp.example", *["a@corp.example, b@corp.example"] * 2)
    assert (made["Auto-Submitted"], made["Message-ID"].startswith(f"<{sub.id}.daily.")) == ("auto-generated", True)
    plain, page = made.get_body(("plain",)), made.get_body(("html",))
    assert plain is not None
    assert page is not None
    assert "3 invalid addresses (code invalid_address)" in plain.get_content()
    assert f"jobwell quarantine unsubscribe {sub.id}" in plain.get_content()
    assert "olga has asked for: the rota" in plain.get_content()
    assert "no &lt;b&gt;such&lt;/b&gt; mailbox" in page.get_content()
    (file,) = made.iter_attachments()
    assert (file.get_content_type(), str(file.get_filename()).split("-")[0], str(file.get_filename())[-4:]) == (
        "text/csv",
        "failed",
        ".csv",
    )
    rows = list(csv.DictReader(io.StringIO(file.get_payload(decode=True).decode("utf-8-sig"))))
    assert [row["code"] for row in rows] == ["invalid_address"] * 3
    (sent,) = desk.log(sub)
    assert (sent["kind"], sent["jobs"], sent["recipients"]) == ("daily", 3, ["a@corp.example", "b@corp.example"])
    after = desk.now(sub)
    assert (after.failures, after.pending, after.state) == (0, None, "on")
    assert after.next_daily is not None
    assert after.next_daily > datetime.now(UTC)
    desk.due()
    assert await rounds(one) == 1  # nothing is new, so nothing is sent, and the period moves on
    assert len(postbox.mails) == 1
    assert desk.now(sub).daily_since > after.daily_since


async def test_an_empty_report_is_sent_by_choice_only(desk: Desk, postbox: Postbox, service: Service) -> None:
    desk.subscribe(daily=time(8))
    desk.subscribe("b@corp.example", daily=time(8), even_empty=True)
    desk.due()
    await rounds(service(postbox))
    assert [(made["To"], made["Subject"]) for made in postbox.mails] == [("b@corp.example", "no job failed (all failed jobs)")]
    assert list(postbox.mails[0].iter_attachments()) == []


async def test_each_failure_is_in_exactly_one_daily_report(desk: Desk, postbox: Postbox, service: Service) -> None:
    desk.subscribe(daily=time(8))
    one = service(postbox)
    for count in (3, 5):
        desk.failed.put(count, ago="20 seconds")
        desk.due()
        await rounds(one)
        # What has failed in this very moment may not be committed yet; the next one has it.
        desk.conn.execute("update quarantine set failed_at = failed_at - interval '1 hour'")
        desk.conn.execute("update report_subscriptions set daily_since = daily_since - interval '30 minutes'")
    assert postbox.subjects == ["3 jobs failed (all failed jobs)", "5 jobs failed (all failed jobs)"]


async def test_a_threshold_is_told_once_in_its_time(
    desk: Desk, postbox: Postbox, service: Service, travel: Callable[[str], None]
) -> None:
    sub, one = desk.subscribe(threshold=4, within=600.0, queue="mail"), service(postbox)
    desk.failed.put(3)
    await rounds(one)
    assert postbox.mails == []
    desk.failed.put(1)
    desk.due()
    await rounds(one)
    assert postbox.subjects == ["4 jobs failed (queue mail)"]
    desk.failed.put(9, ago="5 seconds")
    desk.due()
    await rounds(one)
    assert len(postbox.mails) == 1  # told of lately
    assert desk.now(sub).look_at > datetime.now(UTC) + timedelta(minutes=9)
    travel("11 minutes")
    desk.failed.put(4)
    await rounds(one)
    assert postbox.subjects[1:] == ["4 jobs failed (queue mail)"]


async def test_an_owner_has_what_the_task_or_a_person_gives_to_him(desk: Desk, postbox: Postbox, service: Service) -> None:
    desk.conn.execute(
        """insert into catalog (task, spec, release) values ('hr.notify', '{"owner": "hr-it"}', '1'), ('shop.pay', '{"owner": "shop"}', '1')"""
    )
    desk.failed.put(2)
    desk.failed.put(3, task="shop.pay")
    desk.failed.put(1, task="shop.pay", code="hr_is_away")
    desk.conn.execute(
        "insert into quarantine_groups (fingerprint, owner, set_by) values ('shop.pay:hr_is_away', 'hr-it', 'olga')"
    )
    desk.subscribe("hr@corp.example", owner="hr-it")
    desk.subscribe("shop@corp.example", owner="shop")
    await rounds(service(postbox))
    assert {made["To"]: made["Subject"] for made in postbox.mails} == {
        "hr@corp.example": "3 jobs failed (owner hr-it)", "shop@corp.example": "3 jobs failed (owner shop)",
    }  # fmt: skip


async def test_two_workers_side_by_side_send_one(desk: Desk, postbox: Postbox, service: Service) -> None:
    subs = [desk.subscribe(f"{n}@corp.example") for n in range(12)]
    desk.failed.put(2)
    await asyncio.gather(*(rounds(service(postbox)) for _ in range(4)))
    assert sorted(str(made["To"]) for made in postbox.mails) == sorted(f"{n}@corp.example" for n in range(12))
    assert [len(desk.log(sub)) for sub in subs] == [1] * 12


async def test_a_server_that_is_down_is_tried_again_and_the_report_is_the_same(
    desk: Desk, postbox: Postbox, service: Service, travel: Callable[[str], None]
) -> None:
    sub, one = desk.subscribe(daily=time(8)), service(postbox)
    desk.failed.put(3)
    desk.due()
    postbox.shut()
    pauses = []
    for _ in range(3):
        desk.conn.execute("update report_subscriptions set look_at = now() - interval '1 s'")
        await rounds(one)
        now = desk.now(sub)
        pauses.append(round((now.look_at - now.now).total_seconds(), -1))
    assert pauses == [30, 60, 120]
    assert (now.state, now.failures, now.pending is not None) == ("failing", 3, True)
    assert now.last_error is not None
    assert now.last_error.startswith(f"the mail server localhost:{postbox.port} cannot be used: ")
    desk.failed.put(2, ago="1 seconds")
    postbox.open()
    travel("1 hours")
    await rounds(one)
    assert postbox.subjects == ["3 jobs failed (all failed jobs)"]  # of the day that it was due for
    after = desk.now(sub)
    assert (after.failures, after.last_error, after.pending) == (0, None, None)
    desk.due()
    await rounds(one)
    assert postbox.subjects[1:] == ["2 jobs failed (all failed jobs)"]


async def test_refused_recipients_are_told_and_the_others_have_it(
    desk: Desk, boxes: Callable[..., Postbox], service: Service
) -> None:
    box = boxes(refused=("gone@corp.example",))
    sub = desk.subscribe("a@corp.example", "gone@corp.example")
    alone = desk.subscribe("gone@corp.example")
    desk.failed.put(1)
    await rounds(service(box))
    assert [made["X-Recipients"] for made in box.mails] == ["a@corp.example"]
    assert (desk.now(sub).failures, desk.now(sub).last_error) == (0, "refused for gone@corp.example: 550 5.1.1 no such mailbox")
    failing = desk.now(alone)
    assert (failing.failures, "refuses all recipients: gone@corp.example: 550" in str(failing.last_error)) == (1, True)
    desk.conn.execute("delete from quarantine")
    desk.due()
    await rounds(service(box))
    assert "no such mailbox" in str(desk.now(sub).last_error)  # it stays until something is sent


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")  # the server does not see smtps:// as TLS
@pytest.mark.parametrize("tls", ["starttls", "smtps"])
async def test_tls_is_verified_and_a_password_is_given(desk: Desk, boxes: Callable[..., Postbox], app: App, tls: str) -> None:
    box = boxes(tls=tls, password=True)
    scheme, starttls = ("smtps", "") if tls == "smtps" else ("smtp", "starttls=1&")
    url = f"{scheme}://{USER}:{quote(PASSWORD, safe='')}@localhost:{box.port}?{starttls}from=jobs@corp.example"
    desk.failed.put(1)
    sub = desk.subscribe()
    made = letter.compose(app.database, sub, sub.test(), new_id())
    with pytest.raises(mail.NotSent, match="certificate verify failed"):
        await mail.send(smtp.read(url), made, ["a@corp.example"])
    assert (box.logins, box.mails) == (0, [])
    assert await mail.send(smtp.read(f"{url}&ca={quote(str(CERTIFICATE))}"), made, ["a@corp.example"]) == {}
    await mail.send(smtp.read(f"{url}&verify=0"), made, ["a@corp.example"])
    assert len(box.mails) == 2
    with pytest.raises(mail.NotSent, match="answers 535") as raised:
        await mail.send(smtp.read(url.replace(USER, "nobody") + "&verify=0"), made, ["a@corp.example"])
    assert PASSWORD not in str(raised.value)


async def test_a_password_is_not_sent_over_an_open_line(desk: Desk, postbox: Postbox, app: App) -> None:
    sub = desk.subscribe()
    made = letter.compose(app.database, sub, sub.test(), new_id())
    with pytest.raises(mail.NotSent):
        await mail.send(smtp.read(f"smtp://u:p@localhost:{postbox.port}"), made, ["a@corp.example"])
    assert postbox.logins == 0


async def test_a_hook_gets_what_mail_does_not_reach_and_only_that_is_repeated(
    desk: Desk, postbox: Postbox, service: Service
) -> None:
    got: list[Report] = []

    def hook(report: Report) -> None:
        assert threading.current_thread() is not threading.main_thread()
        got.append(report)
        if len(got) == 1:
            raise SystemExit("the chat is away")

    sub = desk.subscribe("a@corp.example", "slack:ops")
    desk.failed.put(2, code="invalid_address")
    await rounds(service(postbox))
    assert postbox.mails == []  # without a hook it is left to a worker that has one
    one = service(postbox, hook)
    await rounds(one)
    assert (desk.now(sub).last_error, desk.now(sub).done) == ("the hook raised SystemExit: the chat is away", ("a@corp.example",))
    desk.due()
    await rounds(one)
    assert (len(postbox.mails), [report.recipients for report in got]) == (1, [("slack:ops",)] * 2)
    assert got[0].id == got[1].id
    assert (got[1].total, got[1].kind, got[1].subscription, got[1].attachments[0].content_type) == (
        2,
        "threshold",
        sub.id,
        "text/csv",
    )
    assert "2 invalid addresses" in got[1].text


async def test_without_mail_an_async_hook_gets_all(desk: Desk, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Report] = []
    door = asyncio.Event()

    async def hook(report: Report) -> None:
        got.append(report)
        await door.wait()

    desk.subscribe("a@corp.example", "slack:ops")
    desk.failed.put(1)
    monkeypatch.setattr(sending, "HOOK", 0.05)
    sub = desk.now(desk.subscribe("b@corp.example"))
    await rounds(service(None, hook))
    assert sorted(report.recipients for report in got) == [("a@corp.example", "slack:ops"), ("b@corp.example",)]
    assert desk.now(sub).last_error == "the hook did not end within 0.05 s"
    door.set()
    desk.due()
    await rounds(service(None, hook))
    assert desk.now(sub).failures == 0


HOSTILE = "x\r\nBcc: all@corp.example\r\n\r\n<script>alert(1)</script>"


async def test_no_text_of_a_job_or_a_person_becomes_a_line_of_the_head(desk: Desk, postbox: Postbox, service: Service) -> None:
    desk.failed.put(1, message=HOSTILE, tenant=HOSTILE, code=HOSTILE, task=HOSTILE)
    desk.conn.execute(
        "insert into catalog (task, spec, release) values (%s, json_build_object('owner', %s::text), '1')", [HOSTILE, HOSTILE]
    )
    desk.subscribe(owner=HOSTILE, tenant=HOSTILE, why=HOSTILE)
    await rounds(service(postbox))
    (made,) = postbox.mails
    assert set(made.keys()) == {
        "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type", "X-Peer", "X-MailFrom", "X-RcptTo",
        "X-Recipients",
    } - {name for name in ("X-Peer", "X-MailFrom", "X-RcptTo") if name not in made}  # fmt: skip
    assert made["X-Recipients"] == "a@corp.example"
    assert "\n" not in made["Subject"]
    page = made.get_body(("html",))
    assert page is not None
    assert "<script" not in page.get_content()


@pytest.mark.parametrize("form", ["xlsx", "html", "json"])
async def test_the_list_has_the_form_that_was_asked_for(desk: Desk, postbox: Postbox, service: Service, form: str) -> None:
    desk.subscribe(form=form)
    desk.failed.put(2)
    await rounds(service(postbox))
    (file,) = postbox.mails[0].iter_attachments()
    assert file.get_content_type() == letter.TYPES[form]
    assert str(file.get_filename()).endswith(f".{form}")
    assert file.get_payload(decode=True)[:2] == {"xlsx": b"PK", "html": b"<!", "json": b"{\n"}[form]


async def test_a_list_that_mail_cannot_carry_is_cut_and_that_is_said(
    desk: Desk, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.failed.put(300, message="x" * 1000)
    sub = desk.subscribe()
    monkeypatch.setattr(letter, "LARGEST", 50_000)
    made = await asyncio.to_thread(letter.compose, app.database, sub, sub.test(), new_id())
    (file,) = made.attachments
    listed = file.data.count(b"\r\n") - 1
    assert len(file.data) <= 50_000
    assert 20 < listed < 60
    assert f"; the newest {listed} are attached." in made.text


async def test_what_was_retried_meanwhile_is_not_told(desk: Desk, postbox: Postbox, service: Service) -> None:
    sub, one = desk.subscribe(daily=time(8)), service(postbox)
    desk.failed.put(1)
    postbox.shut()
    desk.due()
    await rounds(one)
    desk.conn.execute("delete from quarantine")
    postbox.open()
    desk.due()
    await rounds(one)
    assert (postbox.mails, desk.now(sub).pending, desk.now(sub).failures) == ([], None, 0)


async def test_a_paused_one_rests_and_goes_on_with_all_that_has_failed(desk: Desk, postbox: Postbox, service: Service) -> None:
    sub, one = desk.subscribe(daily=time(8)), service(postbox)
    actions.pause(desk.app.database, sub.id, by="olga")
    desk.failed.put(2)
    desk.due()
    assert await rounds(one) == 0
    actions.resume(desk.app.database, sub.id, by="olga")
    await rounds(one)
    assert postbox.subjects == ["2 jobs failed (all failed jobs)"]


async def test_a_live_worker_sends(desk: Desk, postbox: Postbox, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "EVERY", 0.05)
    app.override({"smtp_url": f"smtp://127.0.0.1:{postbox.port}?from=jobs@corp.example"})
    desk.failed.put(2)
    async with working(app, queues=["default"], slots=2), working(app, queues=["default"], slots=2):
        sub = desk.subscribe("a@corp.example")
        await auntil(lambda: desk.log(sub))
        row = await asyncio.to_thread(actions.try_out, app.database, sub.id, by="olga")
        assert (row["kind"], row["jobs"], row["error"]) == ("test", 2, None)
        postbox.shut()
        row = await asyncio.to_thread(actions.try_out, app.database, sub.id, by="olga")
        assert "cannot be used" in row["error"]
        await apause(0.2)
    assert postbox.subjects == ["2 jobs failed (all failed jobs)", "Test: 2 jobs failed (all failed jobs)"]
    assert (desk.now(sub).failures, desk.now(sub).test_asked) == (0, None)


async def test_where_nothing_can_send_there_is_no_such_service(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    link, threads = Link(app.database, "test"), Threads(asyncio.get_running_loop())
    assert services.reports_of(app, link, threads, new_id()) is None
    app.override({"smtp_url": "smtp://mail.corp.example"})
    monkeypatch.setattr(mail, "find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r"install jobwell\[mail\]"):
        services.reports_of(app, link, threads, new_id())


def test_an_app_has_one_hook() -> None:
    app = App("postgresql://nobody@nowhere.example/jobs")

    @app.on_report
    def tell(report: Report) -> None: ...

    assert app.report_hook is tell
    with pytest.raises(DeclarationError, match="there is a hook already"):
        app.on_report(tell)


def test_what_a_hook_gets_is_frozen_and_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")
    for kind in (Report, Attachment):
        for field in dataclasses.fields(kind):
            assert f"`{field.name}`" in page, field.name
            assert re.search(rf"\b{field.name}[:`]", kind.__doc__ or ""), field.name
        assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]  # what dataclasses keep for themselves

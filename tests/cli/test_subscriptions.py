"""`quarantine subscribe`, `subscriptions` and `unsubscribe`, as their user calls them."""

import asyncio
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App
from jobwell.actions import subscriptions as actions
from jobwell.cli import main
from jobwell.core.errors import Conflict
from jobwell.core.report import Wanted
from jobwell.worker.housekeeping import reports
from tests.cli.conftest import Cli, Said
from tests.reports.postbox import Postbox
from tests.worker.helpers import working

Conn = Connection[Any]


@pytest.fixture(autouse=True)
def _known(conn: Conn) -> None:
    conn.execute("""insert into catalog (task, spec, release) values ('hr.notify', '{"owner": "hr-it", "queue": "mail"}', '1')""")


@pytest.fixture
def cli(app: App, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """In this process: a process for each of these would take minutes."""
    monkeypatch.setenv("JOBWELL_DATABASE_URL", app.settings.url)
    monkeypatch.setenv("JOBWELL_SCHEMA", app.settings.schema)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str, **environ: str) -> Said:
        with pytest.MonkeyPatch.context() as more, pytest.raises(SystemExit) as ended:
            for name, value in environ.items():
                more.setenv(name, value)
            main(list(arguments))
        assert isinstance(ended.value.code, int)
        return Said(ended.value.code, *capsys.readouterr())

    return call


def subscribe(cli: Cli, *more: str) -> Any:
    return cli("quarantine", "subscribe", "--to", "a@b.example", "--by", "olga", *more)


def test_one_is_made_listed_paused_and_ended(cli: Cli, conn: Conn) -> None:
    said = subscribe(
        cli, "--owner", "hr-it", "--daily", "08:00", "--zone", "Asia/Almaty", "--threshold", "50", "--within", "1h", "-f", "xlsx", "--why", "the rota",
    )  # fmt: skip
    assert (said.code, said.err) == (0, "")
    number = said.out.split()[1].rstrip(":")
    assert said.out.splitlines() == [
        f"subscription {number}: owner hr-it, daily at 08:00 Asia/Almaty, and at 50 failures within 1h, to a@b.example",
        f"try it: jobwell quarantine subscriptions test {number}",
    ]
    (row,) = cli("quarantine", "subscriptions", "-o", "json").json
    assert (row["state"], row["filters"], row["to"], row["daily"], row["zone"]) == (
        "on",
        {"owner": "hr-it"},
        ["a@b.example"],
        "08:00",
        "Asia/Almaty",
    )
    assert (row["threshold"], row["within"], row["form"], row["made_by"], row["why"], row["last_error"]) == (
        50,
        3600.0,
        "xlsx",
        "olga",
        "the rota",
        None,
    )
    assert row["next"].endswith("03:00:00+00:00")
    assert "hr-it" in cli("quarantine", "subscriptions").out
    assert "nothing was sent so far" in cli("quarantine", "subscriptions", "show", number).out
    assert cli("quarantine", "subscriptions", "pause", number, "--by", "ivan").code == 0
    assert cli("quarantine", "subscriptions", "pause", number).code == 4
    assert cli("quarantine", "subscriptions", "show", number, "-o", "json").json["state"] == "paused"
    assert cli("quarantine", "subscriptions", "resume", number).code == 0
    assert cli("quarantine", "unsubscribe", number, "--why", "over", "--by", "ivan").out.startswith(
        f"subscription {number} has ended"
    )
    assert cli("quarantine", "unsubscribe", number).code == 3
    assert cli("quarantine", "subscriptions", "test", number).code == 3
    assert cli("quarantine", "subscriptions").out == "there are none; `jobwell quarantine subscribe` makes one\n"
    rows = conn.execute("select actor, action, target, detail->>'why' from audit order by id").fetchall()
    assert [row for row in rows if row[0] in ("olga", "ivan")] == [
        ("olga", "reports.subscribe", number, "the rota"), ("ivan", "reports.pause", number, None), ("ivan", "reports.unsubscribe", number, "over"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((), 2, "give a filter"), (("--all", "--owner", "hr-it"), 2, "one of the two"), (("--all",), 2, "say when"),
        (("--all", "--threshold", "5"), 2, "belong together"), (("--all", "--daily", "25:00"), 2, "no time of the day"),
        (("--all", "--daily", "08:00", "--zone", "Mars/Olympus"), 1, "no time zone"), (("--all", "--daily", "8:00", "--to", "a b"), 1, "is no recipient"),
        (("--owner", "hr-ti", "--daily", "8:00"), 3, "did you mean 'hr-it'?"), (("--fingerprint", "ffff", "--daily", "8:00"), 3, "no group"),
        (("--task", "hr.notfy", "--daily", "8:00"), 3, "hr.notify"), (("--all", "--threshold", "5", "--within", "1h", "--even-empty"), 1, "for a daily one"),
        (("--all", "--threshold", "5", "--within", "soon"), 2, "not a duration"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_one_sentence(cli: Cli, conn: Conn, options: tuple[str, ...], code: int, said: str) -> None:
    answer = subscribe(cli, *options)
    assert (answer.code, said in answer.err) == (code, True), answer.err
    assert conn.execute("select count(*) from report_subscriptions").fetchone() == (0,)


def test_without_a_worker_that_can_send_a_test_says_so(cli: Cli, conn: Conn, app: App) -> None:
    sub = actions.add(app.database, Wanted(), recipients=["a@b.example"], by="olga", threshold=5, within=60.0)
    with pytest.raises(Conflict, match="no worker has sent it"):
        actions.try_out(app.database, sub.id, by="olga", patience=0.0)
    assert conn.execute("select test_asked from report_subscriptions").fetchone() == (None,)


async def test_a_test_is_sent_by_a_worker(cli: Cli, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "EVERY", 0.05)
    box = Postbox(refused=("gone@b.example",))
    app.override({"smtp_url": f"smtp://127.0.0.1:{box.port}?from=jobs@b.example"})
    numbers = [
        subscribe(cli, "--all", "--daily", "08:00", *more).out.split()[1].rstrip(":") for more in ((), ("--to", "gone@b.example"))
    ]
    async with working(app, queues=["default"], slots=1):
        good = await asyncio.to_thread(cli, "quarantine", "subscriptions", "test", numbers[0])
        half = await asyncio.to_thread(cli, "quarantine", "subscriptions", "test", numbers[1])
    box.close()
    assert (good.code, good.out) == (0, "sent to a@b.example: 0 failed job(s)\n")
    assert (half.code, "gone@b.example: 550 5.1.1 no such mailbox" in half.err) == (1, True)
    assert box.subjects == ["Test: no job failed (all failed jobs)"] * 2


def test_doctor_names_those_that_nobody_sends(cli: Cli, conn: Conn) -> None:
    subscribe(cli, "--owner", "hr-it", "--daily", "08:00")
    assert not [hint for hint in cli("doctor", "-o", "json").json["hints"] if "subscription" in hint]
    conn.execute("update report_subscriptions set look_at = now() - interval '10 minutes'")
    (hint,) = [hint for hint in cli("doctor", "-o", "json").json["hints"] if "subscription" in hint]
    assert "(owner hr-it, to a@b.example) are overdue: no live worker can send them" in hint
    conn.execute("update report_subscriptions set look_at = now(), failures = 2, last_error = 'the mail server is away'")
    (hint,) = [hint for hint in cli("doctor", "-o", "json").json["hints"] if "subscription" in hint]
    assert hint.endswith("do not go through: the mail server is away")


def test_a_password_is_masked_by_doctor(cli: Cli) -> None:
    said = cli("doctor", "-o", "json", JOBWELL_SMTP_URL="smtps://jobs:s3cret@mail.example")
    assert "s3cret" not in said.out + said.err
    (row,) = [row for row in said.json["settings"] if row["setting"] == "smtp_url"]
    assert row["value"] == "smtps://jobs:***@mail.example"
    wrong = cli("doctor", JOBWELL_SMTP_URL="smtp://jobs:s3cret@mail.example?colour=red")
    assert (wrong.code, "s3cret" in wrong.err) == (78, False)

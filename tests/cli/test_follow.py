"""Jobs that wait for others, as an operator sees them."""

from jobwell import App, Reject
from jobwell.testing import Testbed
from tests.cli.conftest import Cli


def test_waiting_jobs_are_listed_shown_explained_and_cancelled(app: App, bed: Testbed, cli: Cli) -> None:
    @app.task(name="build")
    async def build(n: int) -> None:
        if n < 0:
            raise Reject("negative", "no")

    @app.task(name="send")
    async def send(to: str) -> None: ...

    jobs = [build.enqueue(n) for n in range(7)]
    mail = send.after(*jobs).enqueue("olga")
    last = mail.then(send, "archive")
    assert {row["id"] for row in cli("jobs", "list", "--state", "waiting", "-o", "json").json} == {str(mail.id), str(last.id)}
    assert cli("status", "-o", "json").json["states"]["waiting"] == 2
    why = cli("jobs", "why", str(mail.id))
    assert f"It follows job {jobs[0].id} (build), which is ready" in why.out
    assert "It waits for 7 jobs in all." in why.out
    shown = cli("jobs", "show", str(mail.id), "-o", "json").json
    assert [row["id"] for row in shown["follows"]] == [str(job.id) for job in jobs]
    assert [row["id"] for row in shown["followed_by"]] == [str(last.id)]
    assert "It is followed by" in cli("jobs", "show", str(mail.id)).out
    refused = cli("jobs", "retry", str(mail.id))
    assert (refused.code, "waits for other jobs" in refused.err) == (4, True)
    said = cli("jobs", "cancel", "--state", "waiting", "--task", "send", "--why", "not today", "--yes", "--by", "olga")
    assert "2 job(s) cancelled" in said.out
    assert bed.jobs("send")[0].state == "cancelled"
    bed.drain(until_empty=True)
    after = send.after(jobs[0]).enqueue("later")
    bed.drain(until_empty=True)
    assert "due, after what it followed: 1 succeeded" in cli("jobs", "show", str(after.id)).out
    bad = build.enqueue(-1)
    held = bad.then(send, "never")
    bed.drain(until_empty=True)
    assert f"jobwell quarantine retry {bad.id}" in cli("jobs", "why", str(held.id)).out
    cli("quarantine", "discard", str(bad.id), "--why", "no use", "--yes")
    assert "had failed and was discarded" in cli("jobs", "show", str(held.id)).out

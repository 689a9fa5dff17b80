"""`jobwell steps …` and `jobwell jobs restart`: the answers of people, and what they find."""

from typing import Any

import pytest
from psycopg import Connection

from jobwell import Context, Fixed, Reject
from jobwell.testing import Testbed
from tests.cli.conftest import Cli

Conn = Connection[Any]


class Shop:
    """A job of three steps: the second one is not answered, the first time."""

    def __init__(self, bed: Testbed) -> None:
        self.bed = bed
        self.calls: list[str] = []
        self.away = True
        self.fails = False

        @bed.app.task(name="order", retry=Fixed("0s", attempts=2))
        async def order(ctx: Context, number: int) -> dict[str, Any]:
            await ctx.step("reserve", self.call, "reserve", unknown="hold")
            receipt = await ctx.step("charge: all", self.call, "charge", {"token": "secret"}, unknown="hold")
            await ctx.step("mail", self.call, "mail")
            if self.fails:
                raise Reject("later", "not yet")
            return {"receipt": receipt}

        self.order = order

    def call(self, what: str, options: Any = None) -> str:
        self.calls.append(what)
        if what == "charge" and self.away:
            raise TimeoutError("nobody answered")
        return what.upper()

    def run(self) -> str:
        job = self.order.enqueue(7)
        self.bed.drain(retries=True)
        return str(job.id)


@pytest.fixture
def shop(bed: Testbed) -> Shop:
    return Shop(bed)


def test_a_held_job_is_shown_and_answered(shop: Shop, conn: Conn, cli: Cli) -> None:
    job = shop.run()
    listed = cli("quarantine", "list", "--reason", "held", "-o", "json").json
    assert [row["id"] for row in listed] == [job]
    shown = cli("jobs", "show", job).out
    for told in ("step 'reserve' done", "step 'charge: all' begun by attempt 1; its outcome is not known", "held"):
        assert told in shown
    rows = cli("steps", "list", job, "-o", "json").json
    assert [(row["name"], row["state"], row["result"]) for row in rows] == [
        ("reserve", "done", "RESERVE"), ("charge: all", "started", None)]  # fmt: skip
    assert rows[1]["call"].endswith("Shop.call('charge', <dict>)")  # nothing secret
    assert "TimeoutError: nobody answered" in cli("steps", "list", job, "-o", "csv").out
    assert "charge: all" in cli("steps", "list", job[:13]).out
    (row,) = cli("steps", "list", "-o", "json").json
    assert (row["job"], row["task"], row["job_state"], row["name"], row["state"]) == (
        job,
        "order",
        "failed: held",
        "charge: all",
        "started",
    )
    answer = ("steps", "answer", job, "charge: all")
    assert cli(*answer, "--why", "x").code == 2
    assert (
        cli(*answer, "--happened").err
        == "jobwell: why: say how it is known; whoever looks at the job later will ask. Nothing was done\n"
    )
    assert cli("steps", "answer", job, "change", "--happened", "--why", "x").code == 3
    assert cli(*answer, "--happened", "--result", "{", "--why", "x").code == 1
    assert cli("steps", "answer", job, "reserve", "--happened", "--why", "x").code == 4
    assert conn.execute("select count(*) from quarantine").fetchone() == (1,)
    said = cli(*answer, "--happened", "--result", '"R-77"', "--why", "it stands in the list", "--by", "olga")
    assert (said.code, said.out) == (0, "step 'charge: all' happened; the job is ready again\n")
    shop.bed.drain(retries=True)
    assert shop.bed.job(shop.bed.jobs("order")[0]).result == {"receipt": "R-77"}
    assert shop.calls == ["reserve", "charge", "mail"]
    told = cli("jobs", "show", job, "-o", "json").json["timeline"]
    assert any(
        "olga said what became of a step, 'charge: all': it happened: it stands in the list" in one["text"] for one in told
    )
    (detail,) = conn.execute("select detail from audit where action = 'steps.answer'").fetchone() or ({},)
    assert (detail["happened"], detail["before"]["state"], detail["before"]["note"]) == (
        True, "started", "TimeoutError: nobody answered")  # fmt: skip
    assert cli(*answer, "--happened", "--why", "x").code == 4
    assert cli("steps", "list").out == "nothing waits for a person\n"


def test_what_did_not_happen_is_done(shop: Shop, cli: Cli) -> None:
    job = shop.run()
    shop.away = False
    assert cli("steps", "answer", job, "charge: all", "--did-not-happen", "--result", "1", "--why", "x").code == 1
    said = cli("steps", "answer", job, "charge: all", "--did-not-happen", "--why", "they know nothing of it", "-o", "json")
    assert said.json == {"job": job, "step": "charge: all", "happened": False, "became": "retried"}
    shop.bed.drain(retries=True)
    assert shop.calls == ["reserve", "charge", "charge", "mail"]
    assert cli("jobs", "list", "--state", "succeeded", "-o", "json").json[0]["id"] == job


def test_a_job_begins_again_from_a_step(shop: Shop, conn: Conn, cli: Cli) -> None:
    shop.away, shop.fails = False, True
    job = shop.run()
    restart = ("jobs", "restart", job, "--from", "charge: all")
    assert cli(*restart, "--yes").code == 1
    assert cli("jobs", "restart", job, "--from", "nothing", "--why", "x", "--yes").code == 3
    assert cli(*restart, "--why", "x").code == 130  # nobody is there to be asked
    shop.fails = False
    said = cli(*restart, "--why", "the price was wrong", "--yes", "--by", "olga")
    assert (said.code, said.out) == (0, "to be done again: charge: all, mail\n")
    shop.bed.drain(retries=True)
    assert shop.calls == ["reserve", "charge", "mail", "charge", "mail"]
    (detail,) = conn.execute("select detail from audit where action = 'jobs.restart'").fetchone() or ({},)
    assert [(row["name"], row["result"]) for row in detail["before"]] == [("charge: all", '"CHARGE"'), ("mail", '"MAIL"')]
    refused = cli(*restart, "--why", "x", "--yes")
    assert (refused.code, "which is final" in refused.err) == (4, True)


def test_a_job_does_not_begin_again_over_what_is_not_known_or_while_it_runs(shop: Shop, conn: Conn, cli: Cli) -> None:
    job = shop.run()
    refused = cli("jobs", "restart", job, "--from", "reserve", "--why", "x", "--yes")
    assert (refused.code, "the outcome of step 'charge: all'" in refused.err) == (4, True)
    conn.execute("insert into jobs (id, gate, task, state) select id, gate, task, 'running' from quarantine")
    conn.execute("delete from quarantine")
    for command in (
        ("jobs", "restart", job, "--from", "reserve", "--yes"),
        ("steps", "answer", job, "charge: all", "--happened"),
    ):
        refused = cli(*command, "--why", "x")
        assert (refused.code, "is running" in refused.err) == (4, True)
    conn.execute("update jobs set state = 'ready'")
    said = cli("steps", "answer", job, "charge: all", "--happened", "--why", "x")
    assert said.out == "step 'charge: all' happened; its next attempt comes by itself\n"
    assert cli("steps", "list", "ffffffff").code == 3

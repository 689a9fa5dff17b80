"""`jobwell dedup`, and what other commands tell of keys. With case K6: nothing is dropped in silence."""

from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, Dedup, Duplicate
from jobwell.core.ids import new_id
from jobwell.core.published import publish
from tests.cli.conftest import Cli

Conn = Connection[Any]
KEY = 'hr.notify:{"n":1}'


@pytest.fixture
def notify(app: App, conn: Conn) -> Any:
    @app.task(name="hr.notify", dedup=Dedup("n"), tenant="branch")
    def notify(n: int, branch: str = "north") -> None: ...

    conn.execute("insert into catalog (task, spec, release) values (%s, %s, '0')", ["hr.notify", publish(notify.spec)])
    return notify


def test_k6_what_was_suppressed_is_counted_by_task_and_reason_and_listed(app: App, notify: Any, conn: Conn, cli: Cli) -> None:
    """Case K6."""
    assert cli("dedup", "list").out.strip() == "no enqueue was suppressed"
    first = notify.enqueue(1)
    for _ in range(3):
        notify.enqueue(1)
    with pytest.raises(Duplicate):
        notify.using(dedup=Dedup("n", on_conflict="reject")).enqueue(1)
    notify.using(dedup=Dedup("n", on_conflict="replace")).enqueue(1, "south")
    found = cli("dedup", "list", "-o", "json").json
    assert [(row["task"], row["reason"], row["count"]) for row in found["counts"]] == [
        ("hr.notify", "rejected", 1), ("hr.notify", "replaced", 1), ("hr.notify", "skipped", 3),
    ]  # fmt: skip
    assert [(row["reason"], row["tenant"]) for row in found["last"]][:2] == [("replaced", "south"), ("rejected", "north")]
    assert {row["holder"] for row in found["last"]} == {str(first.id)}
    assert "skipped" in cli("dedup", "list", "--task", "hr.notify").out
    assert cli("dedup", "list", "--task", "other", "-o", "json").json == {"counts": [], "last": []}
    assert cli("dedup", "list", "-o", "csv").out.splitlines()[0] == "at,task,key,reason,holder,state,tenant"


def test_a_key_is_shown_by_itself_and_by_its_job_and_let_go(app: App, notify: Any, conn: Conn, cli: Cli) -> None:
    first = notify.enqueue(1)
    notify.enqueue(1)
    for named in (KEY, str(first.id), str(first.id)[:20]):
        found = cli("dedup", "show", named, "-o", "json").json
        assert (found["key"], found["held_by"][0]["job"], len(found["suppressed"])) == (KEY, str(first.id), 1)
    assert f"held  by job {first.id} of hr.notify, ready, since" in cli("dedup", "show", KEY).out
    shown = cli("jobs", "show", str(first.id), "-o", "json").json
    assert (shown["dedup_key"], shown["dedup"]) == (KEY, "done")

    assert cli("dedup", "release", KEY).code == 2  # without a reason
    said = cli("dedup", "release", KEY, "--why", "the first hangs", "--by", "olga")
    assert (said.code, str(first.id) in said.out) == (0, True)
    assert conn.execute("select action, actor, target, detail ->> 'why' from audit").fetchall() == [
        ("dedup.release", "olga", KEY, "the first hangs")]  # fmt: skip
    second = notify.enqueue(1)
    assert second.created
    assert first.status() == second.status() == "ready"
    assert cli("dedup", "release", str(first.id), "--why", "again").code == 0  # by its job: whoever holds the key now
    assert cli("dedup", "release", KEY, "--why", "again").code == 3
    assert cli("dedup", "show", "nothing").code == 3
    assert "held  by nobody" in cli("dedup", "show", KEY).out


def test_a_window_is_shown_and_let_go(app: App, conn: Conn, cli: Cli) -> None:
    @app.task(name="hr.notify", dedup=Dedup("n", window="24h"))
    def notify(n: int) -> None: ...

    first = notify.enqueue(1)
    found = cli("dedup", "show", KEY, "-o", "json").json["held_by"][0]
    assert (found["job"], found["state"], found["void"]) == (str(first.id), "ready", False)
    assert found["until"] > found["since"]
    first.cancel()
    assert cli("dedup", "show", KEY, "-o", "json").json["held_by"][0]["void"] is True
    second = notify.enqueue(1)
    assert second.created
    assert cli("dedup", "release", KEY, "--why", "once more", "-o", "json").json == {"released": [str(second.id)]}
    assert notify.enqueue(1).created


def test_enqueue_by_hand_keeps_to_the_terms_of_the_task(notify: Any, conn: Conn, cli: Cli) -> None:
    first = notify.enqueue(1)
    said = cli("jobs", "enqueue", "hr.notify", "--arg", "n=1")
    assert (said.code, said.out.strip()) == (0, str(first.id))
    assert f"skipped: job {first.id} of hr.notify, which is ready, stands for it" in said.err
    assert cli("jobs", "enqueue", "hr.notify", "--arg", "n=1", "-o", "json").json["outcome"] == "skipped"
    for more in (["--no-dedup"], ["--dedup-key", "x"]):
        assert cli("jobs", "enqueue", "hr.notify", "--arg", "n=1", *more, "-o", "json").json["outcome"] == "created"
    assert cli("jobs", "enqueue", "hr.notify", "--arg", "n=1", "--dedup-key", "x", "-o", "json").json["outcome"] == "skipped"
    assert conn.execute("select count(*) from jobs").fetchone() == (3,)


def test_the_preview_of_a_retry_says_how_many_are_held(app: App, notify: Any, conn: Conn, cli: Cli) -> None:
    ids = [new_id() for _ in range(3)]
    for n, job in enumerate(ids):
        conn.execute(
            "insert into quarantine (id, enqueued_at, run_at, deadline, gate, rank, attempt, failures, crashes, losses, postponements,"
            " bytes, queue, task, tenant, lock_key, reason, fingerprint, args, dedup_key, dedup)"
            " values (%s, now(), now(), now(), %s, 100, 1, 1, 0, 0, 0, 2, 'default', 'hr.notify', '', '', 'exhausted', 'f', %s, %s, 'done')",
            [job, notify.spec.gate, f'{{"n":{n}}}', f'hr.notify:{{"n":{n}}}'],
        )
    holder = notify.enqueue(1)
    refused = cli("quarantine", "retry", "--task", "hr.notify")
    assert "this would retry 3 job(s) (1 of them will be refused: equal jobs stand for them)" in refused.err
    said = cli("quarantine", "retry", "--task", "hr.notify", "--yes")
    assert said.out.startswith("2 job(s) ready again")
    assert "1 stay in the quarantine; `jobwell dedup list` names the jobs that stand for them" in said.err
    said = cli("quarantine", "retry", str(ids[1]))
    assert (said.code, f"job {holder.id} stands for its key" in said.err) == (4, True)
    counted = cli("dedup", "list", "-o", "json").json["counts"]
    assert [(row["reason"], row["count"]) for row in counted] == [("retry", 2)]

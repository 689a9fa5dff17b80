"""The quarantine as people work on it: groups, what is said of them, and the end of a job that is given up."""

import time
from typing import Any

import pytest

from jobwell.core.errors import InvalidArguments, NotFound
from jobwell.core.filters import Selection
from jobwell.core.ids import new_id
from jobwell.core.outcome import Failed, Failure
from jobwell.core.states import Reason
from jobwell.store import quarantine
from jobwell.store.statements import run
from jobwell.store.upkeep import UpkeepVerbs
from tests.store.helpers import Hand, Store

MANY = """
insert into quarantine (id, failed_at, enqueued_at, run_at, gate, rank, attempt, failures, crashes, losses, postponements, bytes, queue, task,
                        tenant, lock_key, reason, error_type, message, fingerprint, args)
select gen_random_uuid(), now() - n * interval '1 second', now(), now(), 1, 100, 1, 1, 0, 0, 0, 2, 'default', 'task' || n %% 5, 't' || n %% 100, '',
       'exhausted', 'ValueError', 'no ' || n, 'task' || n %% 5 || '|ValueError|' || n %% %s, '{}'
  from generate_series(1, %s) n"""


def fill(store: Store, rows: int, kinds: int) -> None:
    store.conn.execute(MANY, [kinds, rows])


async def fail(store: Store, hand: Hand, message: str, **columns: Any) -> None:
    store.put_new(1, **columns)
    job = await hand.claim_one()
    failure = Failure("ValueError", message, "", "tasks.py:note")
    assert not await hand.end(Failed(Reason.EXHAUSTED, failure), (job.id, hand.claim_id))


def groups(store: Store, *, state: str | None = None, **chosen: Any) -> list[dict[str, Any]]:
    return run(store.conn, quarantine.groups(store.statements, Selection(**chosen), state=state))


async def test_failures_of_one_kind_are_one_group(store: Store, hand: Hand) -> None:
    for n, tenant in ((7, "a"), (8812, "b"), (9, "b")):
        await fail(store, hand, f"employee {n} is gone", tenant=tenant)
    await fail(store, hand, "the mail server is away")
    last, first = groups(store)
    assert (last["message"], last["count"], last["tenants"]) == ("the mail server is away", 1, 0)
    assert (first["message"], first["count"], first["tenants"], first["some_tenants"]) == (
        "employee <n> is gone", 3, 2, ["a", "b"])  # fmt: skip
    assert first["first_seen"] < first["last_seen"] < last["first_seen"]
    assert len(first["examples"]) == 3
    assert (first["state"], first["owner"], first["task"], first["error_type"]) == ("new", None, "note", "ValueError")
    (of_b,) = groups(store, tenant="b")
    assert (of_b["count"], of_b["some_tenants"], len(of_b["examples"])) == (2, ["b"], 2)
    assert groups(store, task="other") == []
    assert [row["count"] for row in groups(store, fingerprint=first["fingerprint"])] == [3]


async def test_a_resolved_group_that_fails_again_is_new_again(store: Store, hand: Hand) -> None:
    await fail(store, hand, "no 1")
    name = groups(store)[0]["group"]
    whole = run(store.conn, quarantine.named(store.statements, name[:5]))

    def put(**said: Any) -> dict[str, Any]:
        given = {"owner": None, "note": None, "state": None} | said
        return run(store.conn, quarantine.put(store.statements, whole, actor="olga", **given))

    put(state="resolved", note="mended", owner="ivan")
    (row,) = groups(store)
    assert (row["state"], row["note"], row["owner"], row["set_by"]) == ("resolved", "mended", "ivan", "olga")
    assert groups(store, state="open") == []
    await fail(store, hand, "no 2")
    put(note="not mended")  # a word more does not make it resolved again
    (row,) = groups(store, state="new again")
    assert (row["count"], row["note"], row["owner"]) == (2, "not mended", "ivan")
    assert len(groups(store, state="open")) == 1
    assert put(owner="", state="looked at")["owner"] is None
    assert groups(store)[0]["state"] == "looked at"
    assert store.count("audit", "action = 'quarantine.set'") == 3


async def test_the_state_is_the_whole_groups_whatever_the_filter_shows(store: Store, hand: Hand) -> None:
    await fail(store, hand, "no 1", tenant="a")
    (row,) = groups(store)
    said = {"owner": None, "note": None, "state": "resolved", "actor": "olga"}
    run(store.conn, quarantine.put(store.statements, row["fingerprint"], **said))
    assert [row["state"] for row in groups(store, tenant="a")] == ["resolved"]
    await fail(store, hand, "no 2", tenant="b")
    assert [(row["state"], row["count"]) for row in groups(store, tenant="a")] == [("new again", 1)]
    assert groups(store, tenant="a", state="resolved") == []


async def test_the_owner_is_whom_the_task_names(store: Store, hand: Hand) -> None:
    await fail(store, hand, "no")
    store.conn.execute("""insert into catalog (task, spec, release) values ('note', '{"owner": "hr"}', '0')""")
    assert groups(store)[0]["owner"] == "hr"


def test_a_name_that_fits_nothing_or_several_is_told(store: Store) -> None:
    fill(store, 200, 100)
    row = groups(store)[0]
    assert run(store.conn, quarantine.named(store.statements, row["fingerprint"])) == row["fingerprint"]
    assert run(store.conn, quarantine.named(store.statements, row["group"].upper())) == row["fingerprint"]
    for nothing in ("zzzz", row["group"][:3], ""):
        with pytest.raises(NotFound, match="quarantine groups"):
            run(store.conn, quarantine.named(store.statements, nothing))
    with pytest.raises(InvalidArguments):
        run(store.conn, quarantine.named(store.statements, "a\x00"))


def test_a_hundred_thousand_failed_jobs_are_grouped_in_about_a_second(store: Store) -> None:
    fill(store, 100_000, 50)
    store.conn.execute("analyze quarantine")
    began = time.perf_counter()
    found = groups(store)
    assert time.perf_counter() - began < 2.0  # a fifth of it on a quiet machine
    assert sum(row["count"] for row in found) == 100_000
    assert len(found) == 50


async def test_a_discarded_job_is_over_and_says_who_and_why(store: Store, hand: Hand) -> None:
    await fail(store, hand, "employee 7 is gone", args='{"n": 1}')
    (job,) = (row[0] for row in store.ask("select id from quarantine"))
    assert run(store.conn, quarantine.discard(store.statements, [job], actor="olga", why="sent by hand")) == [job]
    assert run(store.conn, quarantine.discard(store.statements, [job], actor="olga", why="again")) == []
    state, note, args = store.one("select state, note, args::text from finished where id = %s", job)
    assert (state, args) == ("failed", '{"n": 1}')
    assert note == "discarded by olga: sent by hand (it had failed as exhausted: employee 7 is gone)"
    assert (store.count("jobs"), store.count("quarantine")) == (0, 0)
    assert not await hand.claim()
    assert not run(store.conn, quarantine.retry(store.statements, Selection(ids=[job]))).ids


def test_original_arguments_and_turns_go_when_their_job_is_nowhere_any_more(store: Store) -> None:
    (there,) = store.put_new(1)
    edit = "insert into quarantine_edits (job_id, at, actor, args) values (%s, now() - interval '8 days', 'olga', '{}')"
    turn = "insert into quarantine_turns values (%s, now() - interval '8 days')"
    for job in (there, new_id()):
        store.conn.execute(edit, [job])
        store.conn.execute(turn, [job])
    run(store.conn, UpkeepVerbs(store.statements).delete_old(seconds=9 * 86400.0))
    assert (store.count("quarantine_edits"), store.count("quarantine_turns")) == (2, 2)
    run(store.conn, UpkeepVerbs(store.statements).delete_old(seconds=7 * 86400.0))
    assert store.ask("select job_id from quarantine_edits") == store.ask("select job_id from quarantine_turns") == [(there,)]

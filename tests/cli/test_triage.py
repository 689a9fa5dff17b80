"""`jobwell quarantine groups`, `set`, `discard`, and what `retry` can do besides."""

from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App
from tests.actions.test_triage import bury
from tests.cli.conftest import Cli

Conn = Connection[Any]


@pytest.fixture
def failed(app: App, conn: Conn) -> list[str]:
    @app.task(name="mail", tenant="firm")
    async def mail(firm: str, email: str) -> None: ...

    jobs = [str(mail.enqueue("a" if n % 2 else "b", f"{n}@example.org").id) for n in range(4)]
    bury(conn)
    conn.execute("insert into catalog (task, spec, release) values ('other', '{}', '0')")
    return jobs


def test_groups_are_listed_and_people_say_what_they_know(failed: list[str], conn: Conn, cli: Cli) -> None:
    (row,) = cli("quarantine", "groups", "-o", "json").json
    assert (row["count"], row["tenants"], row["some_tenants"], row["state"]) == (4, 2, ["a", "b"], "new")
    name = row["group"]
    assert name in cli("quarantine", "groups", "--tenant", "a").out
    assert cli("quarantine", "groups", "-o", "csv").out.startswith("group,fingerprint,task,reason,")
    assert cli("quarantine", "groups", "--task", "other").out == "none match\n"
    assert cli("quarantine", "groups", "--task", "othr").code == 3
    assert cli("quarantine", "set", name).code == 2
    assert cli("quarantine", "set", "ffff00ffff", "--note", "x").code == 3
    said = cli("quarantine", "set", name[:5], "--owner", "ivan", "--state", "waiting", "--note", "the bank", "--by", "olga")
    assert said.out == f"group {name}: waiting, owner ivan, note the bank\n"
    assert cli("quarantine", "set", name, "--state", "resolved", "-o", "json").json["note"] == "the bank"
    assert cli("quarantine", "groups", "--state", "open").out == "none match\n"
    assert conn.execute("select actor, action, target from audit order by id limit 1").fetchone() == (
        "olga", "quarantine.set", name)  # fmt: skip


def test_a_group_goes_back_at_a_pace(failed: list[str], conn: Conn, cli: Cli) -> None:
    name = cli("quarantine", "groups", "-o", "json").json[0]["group"]
    for wrong in ("10", "0/s", "x/s", "10/d"):
        assert cli("quarantine", "retry", "--group", name, "--pace", wrong).code == 2
    assert cli("quarantine", "retry", "--group", "ffff00ffff", "--yes").code == 3
    preview = cli("quarantine", "retry", "--group", name, "--pace", "30/m")
    assert (preview.code, "would retry 4 job(s)" in preview.err) == (2, True)
    assert cli("quarantine", "retry", "--group", name, "--pace", "30/m", "--yes", "-o", "json").json["retried"] == 4
    assert conn.execute("select extract(epoch from max(run_at) - min(run_at))::float8 from jobs").fetchone() == (6.0,)
    (row,) = cli("actions", "list", "-o", "json").json
    assert (row["done"], row["state"]) == (4, "done")


def test_arguments_are_edited_and_the_original_ones_are_shown(failed: list[str], conn: Conn, cli: Cli) -> None:
    for wrong in ("{", "[]", "{}", "1"):
        assert cli("quarantine", "retry", failed[0], "--args", wrong).code in (1, 2)
    said = cli("quarantine", "retry", failed[0], "--args", '{"email": "x", "email": "y"}')
    assert said.err.endswith("stands twice; nothing was changed\n")
    assert conn.execute("select count(*) from quarantine").fetchone() == (4,)
    assert cli("quarantine", "retry", failed[0], "--args", '{"email": "ann@example.org"}', "--by", "olga").code == 0
    shown = cli("jobs", "show", failed[0], "-o", "json").json
    assert (shown["args"], shown["state"]) == ({"firm": "b", "email": "ann@example.org"}, "ready")
    assert (shown["edits"][0]["by"], shown["edits"][0]["args"]) == ("olga", {"firm": "b", "email": "0@example.org"})
    assert "0@example.org" in cli("jobs", "show", failed[0]).out


def test_a_group_goes_back_with_other_arguments(failed: list[str], conn: Conn, cli: Cli, tmp_path: Path) -> None:
    name = cli("quarantine", "groups", "-o", "json").json[0]["group"]
    edit = ("quarantine", "retry", "--group", name, "--args", '{"email": "all@example.org"}')
    preview = cli(*edit)
    assert (preview.code, "would retry 4 job(s) with other arguments (email)" in preview.err) == (2, True)
    wrong = cli(*edit[:-1], '{"emial": "x"}', "--yes")
    assert (wrong.code, "emial is not an argument of mail" in wrong.err, "nothing was changed" in wrong.err) == (1, True, True)
    (tmp_path / "shop.py").write_text(
        "from jobwell import App\napp = App()\n@app.task(name='mail', tenant='firm')\nasync def mail(firm: str, email: str) -> None: ...\n"
    )
    code = cli(*edit[:-1], '{"email": 7}', "--yes", "--app", "shop:app")
    assert (code.code, "email: Input should be a valid string; nothing was changed" in code.err) == (1, True)
    assert cli("quarantine", "retry", "--group", name, "--app", "shop:app").code == 2
    said = cli(*edit, "--yes", "--app", "shop:app", "--by", "olga", "--why", "typing errors")
    assert (said.code, said.out) == (0, "4 job(s) ready again\n")
    assert conn.execute("select distinct args ->> 'email' from jobs").fetchall() == [("all@example.org",)]
    shown = cli("jobs", "show", failed[1])
    assert "olga took it back from the quarantine with other arguments (email): typing errors" in shown.out
    assert "1@example.org" in shown.out  # as it was before


def test_a_job_is_given_up_only_with_a_reason(failed: list[str], conn: Conn, cli: Cli) -> None:
    assert cli("quarantine", "discard", failed[0]).code == 2
    assert cli("quarantine", "discard", failed[0], "--why", " ").code == 2
    assert cli("quarantine", "discard", "--all", "--why", "over").code == 2  # the preview
    assert conn.execute("select count(*) from quarantine").fetchone() == (4,)
    assert cli("quarantine", "discard", failed[0], "--why", "sent by hand", "--by", "olga").out == "1 job(s) discarded\n"
    assert "discarded by olga: sent by hand" in cli("jobs", "show", failed[0]).out
    again = cli("quarantine", "discard", failed[0], "--why", "x")
    assert (again.code, "not in the quarantine" in again.err) == (4, True)
    assert cli("quarantine", "discard", "--all", "--why", "over", "--yes").out == "3 job(s) discarded\n"

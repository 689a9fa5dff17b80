"""One clear sentence and an exit code for everything that can be wrong; never a traceback."""

from pathlib import Path

import pytest

from jobwell import App
from tests.cli.conftest import Cli


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("status",), 78, "no database is set"),
        (("status", "--database-url", "mysql://x/y"), 78, "is not a PostgreSQL URL"),
        (("status", "--database-url", "postgresql+psycopg://x/y"), 78, "+driver"),
        (("status", "--database-url", "postgresql://u:geheim@127.0.0.1:1/x"), 75, "cannot be reached"),
        (("status", "--schema", "No Good"), 78, "lower-case"),
        (("worker",), 78, "no app is named"),
        (("up",), 78, "no app is named"),
        (("stats",), 2, "did you mean 'status'"),
        (("jobs", "lst"), 2, "list"),
        (("jobs", "list", "--limit", "0"), 2, "range"),
        (("jobs", "list", "--state", "gone"), 2, "gone"),
        (("worker", "x:y", "--slots", "many"), 2, "many"),
        (("bench", "nothing"), 2, "nothing"),
    ],
)
def test_wrong_input_gets_a_sentence(bare: Cli, arguments: tuple[str, ...], code: int, sentence: str) -> None:
    said = bare(*arguments)
    assert said.code == code
    assert sentence in said.err
    assert "Traceback" not in said.err
    assert "geheim" not in said.err


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("JOBWELL_SLOTS", "0", "slots=0 is out of range"),
        ("JOBWELL_GRACE", "soon", "is not a duration"),
        ("JOBWELL_PROCESSES", "x", "whole number"),
    ],
)
def test_wrong_setting_names_its_origin(bare: Cli, name: str, value: str, sentence: str) -> None:
    said = bare("doctor", **{name: value})
    assert said.code == 78
    assert sentence in said.err
    assert name in said.err


def test_missing_database_and_tables(cli: Cli, app: App) -> None:
    there = app.settings.url
    missing = (
        there.rsplit("/", 1)[0] + "/no_such_database" if "?" not in there else there.replace("/jobwell?", "/no_such_database?")
    )
    said = cli("status", JOBWELL_DATABASE_URL=missing)
    assert said.code == 78
    assert "does not exist" in said.err
    said = cli("status", JOBWELL_SCHEMA="no_such_schema")
    assert said.code == 78
    assert "jobwell migrate" in said.err


def test_worker_refuses_what_cannot_work(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("from jobwell import App\napp = App()\n")
    (tmp_path / "broken.py").write_text("import nowhere_at_all\n")
    (tmp_path / "typo.py").write_text(
        "from jobwell import App\napp = App()\n@app.task(queue='notifcations')\nasync def f() -> None: ...\n"
    )
    for target, sentence in (
        ("absent:app", "no module 'absent'"),
        ("empty:other", "must be a jobwell.App"),
        ("empty:app", "declares no tasks"),
        ("broken:app", "nowhere_at_all"),
        ("typo:app", "did you mean 'notifications'"),
    ):
        said = cli("worker", target)
        assert said.code == 78, said.err
        assert sentence in said.err
        assert "Traceback" not in said.err


def test_unknown_job(cli: Cli) -> None:
    assert cli("jobs", "show", "zz").code == 3
    said = cli("jobs", "show", "01a228ab-083f-723d-9bd0-0bb8f86e964f")
    assert said.code == 3
    assert "there is no job" in said.err

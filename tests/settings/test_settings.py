"""Settings: which source wins, what is refused, and what is shown."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell import App, SettingsError
from jobwell.settings import Settings, load, masked


def loaded(folder: Path, environ: Mapping[str, str] | None = None, **arguments: Any) -> Settings:
    return load(arguments, environ=environ or {}, folder=folder)


def origin(settings: Settings, name: str) -> tuple[str, str]:
    """(shown value, where it came from)."""
    return next((shown, where) for called, shown, where, _ in settings.described() if called == name)


# --- precedence ----------------------------------------------------------------------------------------------------------


def test_arguments_beat_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    (tmp_path / "jobwell.toml").write_text('slots = 10\nprocesses = 11\nlease = "20s"\n')
    environ = {"JOBWELL_SLOTS": "20", "JOBWELL_PROCESSES": "21"}
    settings = loaded(tmp_path, environ, slots=30)
    assert (settings.slots, settings.processes, settings.lease, settings.grace) == (30, 21, 20.0, 25.0)
    assert origin(settings, "slots") == ("30", "argument")
    assert origin(settings, "processes") == ("21", "JOBWELL_PROCESSES")
    assert origin(settings, "lease") == ("20s", str(tmp_path / "jobwell.toml"))
    assert origin(settings, "grace") == ("25s", "default")


def test_an_argument_of_none_does_not_count(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"JOBWELL_SCHEMA": "jobs"}, schema=None).schema == "jobs"


def test_an_empty_variable_does_not_count(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"JOBWELL_SCHEMA": ""}).schema == "jobwell"


def test_pyproject_is_read_from_a_folder_below_and_jobwell_toml_beats_it(tmp_path: Path) -> None:
    below = tmp_path / "src" / "shop"
    below.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.jobwell]\nslots = 5\n")
    assert origin(loaded(below), "slots") == ("5", str(tmp_path / "pyproject.toml"))
    (tmp_path / "jobwell.toml").write_text("slots = 6\n")
    assert origin(loaded(below), "slots") == ("6", str(tmp_path / "jobwell.toml"))


def test_the_nearest_project_ends_the_search(tmp_path: Path) -> None:
    (tmp_path / "jobwell.toml").write_text("slots = 5\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert loaded(tmp_path / "other").slots == 100


# --- values from files that a container mounts ---------------------------------------------------------------------------


def test_a_secret_is_read_from_the_file_that_a_variable_names(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("postgresql://me:secret@db/jobs\n")
    settings = loaded(tmp_path, {"JOBWELL_DATABASE_URL_FILE": str(secret)})
    assert settings.url == "postgresql://me:secret@db/jobs"
    assert origin(settings, "database_url") == ("postgresql://me:***@db/jobs", "JOBWELL_DATABASE_URL_FILE")


def test_a_secret_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="JOBWELL_DATABASE_URL_FILE=.*: the file cannot be read"):
        loaded(tmp_path, {"JOBWELL_DATABASE_URL_FILE": str(tmp_path / "nowhere")})
    (tmp_path / "latin").write_bytes(b"postgresql://m\xe9@db/jobs")
    with pytest.raises(SettingsError, match="JOBWELL_DATABASE_URL_FILE=.*: the file cannot be read"):
        loaded(tmp_path, {"JOBWELL_DATABASE_URL_FILE": str(tmp_path / "latin")})


@pytest.mark.parametrize("names", [("JOBWELL_SCHEMA", "JOBWELL_SCHEMA_FILE"), ("JOBWELL_SCHEMA_FILE", "JOBWELL_SCHEMA")])
def test_a_variable_and_its_file_together_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    (tmp_path / "value").write_text("from_file")
    values = {"JOBWELL_SCHEMA": "direct", "JOBWELL_SCHEMA_FILE": str(tmp_path / "value")}
    with pytest.raises(SettingsError, match="JOBWELL_SCHEMA and JOBWELL_SCHEMA_FILE"):
        loaded(tmp_path, {name: values[name] for name in names})


# --- what is refused -----------------------------------------------------------------------------------------------------


def test_an_unknown_name_is_refused_with_its_source(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="^argument: there is no setting 'slot'"):
        loaded(tmp_path, slot=5)
    (tmp_path / "jobwell.toml").write_text("slot = 5\n")
    with pytest.raises(SettingsError, match=r"jobwell\.toml: there is no setting 'slot'"):
        loaded(tmp_path)


def test_variables_of_others_are_left_alone(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"JOBWELL_TEST_DATABASE_URL": "x", "JOBWELLER_SLOTS": "5", "SLOTS": "7"}) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("slots", 0, "slots=0 is out of range; it must be from 1 to 10000"), ("slots", 10_001, "slots=10001 is out of range"),
        ("slots", "many", "slots='many' is not a whole number"), ("slots", 1.5, "slots=1.5 is not a whole number"),
        ("slots", True, "slots=True is not a whole number"), ("processes", -1, "processes=-1 is out of range"),
        ("lease", "1s", "lease=1 is out of range; it must be from 2 to 3600"), ("lease", "soon", "lease='soon' is not a duration"),
        ("poll", 0, "poll=0 is out of range"), ("payload_limit", 10, "payload_limit=10 is out of range"),
        ("retention", "5m", "retention=300 is out of range"), ("quarantine_keep", "5m", "quarantine_keep=300 is out of range"),
        ("connect_timeout", "1h", "connect_timeout=3600 is out of range"),
        ("schema", "Jobs", "schema='Jobs': use lower-case letters"), ("schema", "", "schema=''"), ("schema", "x; drop table y", "schema="),
        ("schema", "a" * 41, "schema="), ("schema", "jobs\n", "schema="), ("schema", 5, "schema=5 must be a text"),
        ("queues", 5, "queues=5 must be a list of names"), ("queues", [1], r"queues=\[1\] must be a list of names"),
        ("database_url", "mysql://u:secret@db/jobs", r"database_url='mysql://u:\*\*\*@db/jobs' is not a PostgreSQL URL"),
        ("database_url", "postgresql+psycopg://db/jobs", r"SQLAlchemy's '\+driver' is not part of it"),
        ("database_url", "host=db password=secret", r"database_url='host=db password=\*\*\*' is not a PostgreSQL URL"),
        ("database_url", "db.example.com", "it looks like postgresql://user:password@host:5432/database"),
        ("database_url", "sqlite:///jobs.db", "is not a PostgreSQL URL"), ("database_url", "Embedded", "is not a PostgreSQL URL"),
        ("direct_url", "redis://db", "direct_url='redis://db' is not a PostgreSQL URL"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_its_source(tmp_path: Path, name: str, value: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as refused:
        loaded(tmp_path, **{name: value})
    assert "argument" in refused.value.message
    assert "secret" not in refused.value.message


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"slots=0 is out of range.*\(from: JOBWELL_SLOTS\)"):
        loaded(tmp_path, {"JOBWELL_SLOTS": "0"})


@pytest.mark.parametrize("text", ["slots = ", "[tool", "slots = 5\nslots = 6\n"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "jobwell.toml").write_text(text)
    with pytest.raises(SettingsError, match=r"jobwell\.toml: cannot be read"):
        loaded(tmp_path)


@pytest.mark.parametrize("text", ["tool = 5\n", "[tool]\njobwell = 5\n", "[[tool.jobwell]]\nslots = 5\n"])
def test_a_section_that_is_no_table_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(SettingsError, match=r"pyproject\.toml: .*must be a table"):
        loaded(tmp_path)


def test_without_a_url_the_error_names_both_choices(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"JOBWELL_DATABASE_URL=postgresql://.*or JOBWELL_DATABASE_URL=embedded"):
        _ = loaded(tmp_path).url


def test_an_app_without_a_url_is_made_and_says_so_at_the_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = App()

    @app.task
    def task() -> None: ...

    with pytest.raises(SettingsError, match="no database is set"):
        task.enqueue()


# --- how values are written ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "written", "expected"),
    [
        ("slots", "1_000", 1000), ("slots", " 7 ", 7), ("lease", "1m", 60.0), ("lease", 15, 15.0), ("queues", "a, b,,c", ("a", "b", "c")),
        ("queues", ["a", "b"], ("a", "b")), ("queues", "", ()), ("database_url", "postgres://db/x", "postgres://db/x"),
        ("database_url", "postgresql://h1,h2:5433/x?target_session_attrs=any", "postgresql://h1,h2:5433/x?target_session_attrs=any"),
        ("database_url", "embedded", "embedded"), ("schema", "_jobs2", "_jobs2"),
    ],
)  # fmt: skip
def test_values_are_read_as_people_write_them(tmp_path: Path, name: str, written: Any, expected: Any) -> None:
    assert getattr(loaded(tmp_path, **{name: written}), name) == expected


def test_a_url_in_the_form_of_the_environment_works_in_every_source(tmp_path: Path) -> None:
    (tmp_path / "jobwell.toml").write_text('queues = ["bulk", "reports"]\nretention = "30d"\n')
    from_file = loaded(tmp_path)
    (tmp_path / "jobwell.toml").unlink()
    assert loaded(tmp_path, {"JOBWELL_QUEUES": "bulk,reports", "JOBWELL_RETENTION": "30d"}) == from_file


def test_settings_cannot_be_changed_and_every_one_is_described(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    with pytest.raises(AttributeError):
        settings.slots = 5  # type: ignore[misc]
    for name, shown, where, about in settings.described():
        assert hasattr(settings, name)
        assert isinstance(shown, str)
        assert where == "default"
        assert about


def test_three_beats_may_fail_before_the_lease_ends(tmp_path: Path) -> None:
    assert loaded(tmp_path, lease="20s").beat * 4 == 20


# --- passwords are never shown -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@db:5432/jobs", "postgresql://me:***@db:5432/jobs"), ("postgresql://me@db/jobs", "postgresql://me@db/jobs"),
        ("postgresql://:secret@db/jobs", "postgresql://:***@db/jobs"), ("postgresql://db:5432/jobs", "postgresql://db:5432/jobs"),
        ("postgresql://me:sec:ret@db/jobs", "postgresql://me:***@db/jobs"), ("postgresql://me:sec@ret@db/jobs", "postgresql://me:***@db/jobs"),
        ("postgresql://me:sec/ret@db/jobs", "postgresql://me:***@db/jobs"), ("postgresql://me:sec?ret@db/jobs", "postgresql://me:***@db/jobs"),
        ("postgresql://me:sec#ret@db/jobs", "postgresql://me:***@db/jobs"), ("postgresql://me:sec[ret@db/jobs", "postgresql://me:***@db/jobs"),
        ("postgresql://me:secret@h1:5432,h2:5433/jobs", "postgresql://me:***@h1:5432,h2:5433/jobs"),
        ("postgresql://me:secret@[::1]:5432/jobs", "postgresql://me:***@[::1]:5432/jobs"),
        ("postgresql://db/jobs?user=me&password=secret&sslmode=require", "postgresql://db/jobs?user=me&password=***&sslmode=require"),
        ("postgresql://db/jobs?sslpassword=secret", "postgresql://db/jobs?sslpassword=***"),
        ("postgresql:///jobs?host=/run/pg", "postgresql:///jobs?host=/run/pg"), ("embedded", "embedded"), ("", ""),
    ],
)  # fmt: skip
def test_the_password_is_masked_and_nothing_else(url: str, shown: str) -> None:
    assert masked(url) == shown


@given(st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1).map(lambda text: f"<{text}>"))
def test_no_password_of_any_content_is_shown(password: str) -> None:
    assert password not in masked(f"postgresql://me:{password}@db/jobs")


def test_the_password_is_in_no_repr_of_an_origin_and_in_no_error(tmp_path: Path) -> None:
    described = loaded(
        tmp_path, database_url="postgresql://me:secret@db/jobs", direct_url="postgresql://me:secret@db/jobs"
    ).described()
    assert "secret" not in repr(described)


def test_the_password_is_in_no_repr_of_the_settings(tmp_path: Path) -> None:
    assert "secret" not in repr(loaded(tmp_path, database_url="postgresql://me:secret@db/jobs"))


@pytest.mark.parametrize("password", ["p@ss/w@rd", "p/ss", "geh%eim@", "a@b"])
def test_a_password_that_is_not_escaped_is_masked_whole(password: str) -> None:
    assert masked(f"postgresql://u:{password}@db/x") == "postgresql://u:***@db/x"
    assert masked(f"postgresql://u/v:{password}@db/x") == "postgresql://***@db/x"
    assert masked("postgresql://u@db/x") == "postgresql://u@db/x"


@pytest.mark.parametrize(
    ("given", "strict"), [("true", True), ("1", True), ("on", True), (True, True), ("no", False), ("0", False)]
)
def test_a_switch_is_read_from_words(tmp_path: Path, given: str | bool, strict: bool) -> None:
    assert loaded(tmp_path, strict_priority=given).strict_priority is strict
    if isinstance(given, str):
        assert loaded(tmp_path, {"JOBWELL_STRICT_PRIORITY": given}).strict_priority is strict


def test_a_switch_that_is_neither_on_nor_off_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="JOBWELL_STRICT_PRIORITY: strict_priority='maybe' must be true or false"):
        loaded(tmp_path, {"JOBWELL_STRICT_PRIORITY": "maybe"})

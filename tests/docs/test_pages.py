"""The tables of the pages name what there is: each event with its fields, each error with its attributes."""

import dataclasses
import inspect
import re
from pathlib import Path

import jobwell
from jobwell import events

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str) -> dict[str, str]:
    """The rows of all tables, by the first name in them."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    return {found[1]: line for line in lines if (found := re.match(r"\| `(\w+)`", line))}


def test_each_event_stands_in_the_table_with_its_fields() -> None:
    table = rows("observability.md")
    common = {field.name for field in dataclasses.fields(events.JobEvent)}
    for name in events.__all__:
        if name in ("Event", "JobEvent"):
            continue
        fields = {field.name for field in dataclasses.fields(getattr(events, name))}
        own = fields - (common if name.startswith("Job") and name != "JobStarted" else {"at", "worker"})
        cells = table[name].split("|")
        assert set(re.findall(r"`(\w+)`", cells[3])) == own, name


def test_each_error_stands_in_the_table_with_its_attributes() -> None:
    table = rows("results.md")
    for name in jobwell.__all__:
        error = getattr(jobwell, name)
        if inspect.isclass(error) and issubclass(error, jobwell.ResultError) and error is not jobwell.ResultError:
            attributes = set(inspect.signature(error.__init__).parameters) - {"self", "message"}
            assert set(re.findall(r"`(\w+)`", table[name].split("|")[3])) == attributes, name

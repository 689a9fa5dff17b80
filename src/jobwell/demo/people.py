"""The people of the case, as `employees.csv` has them."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import islice

COLUMNS = (
    "employee_id", "name", "email", "department", "position", "manager_id", "phone",
    "new_department", "new_position", "new_manager_id", "event_version",
)  # fmt: skip
PEOPLE = 8000
REFUSED_DOMAIN = "refused.example"
GONE_PREFIX = "former."  # how the mail server marks mailboxes of people who left


@dataclass(frozen=True, slots=True)
class Person:
    """One row: who it is today, and what the transfer of `event_version` makes of them."""

    employee_id: int
    name: str
    email: str
    department: str
    position: str
    manager_id: int | None
    phone: str
    new_department: str
    new_position: str
    new_manager_id: int | None
    event_version: str


def source() -> Traversable:
    """The file in the package."""
    return files("jobwell.demo") / "employees.csv"


def lines(limit: int | None = None) -> Iterator[str]:
    """The lines of the file, the header first, for a COPY. Each person's managers stand above them, so any beginning is whole."""
    with source().open("r", encoding="utf-8") as file:
        yield from islice(file, None if limit is None else limit + 1)


def read(limit: int | None = None) -> list[Person]:
    """The first people of the file, or all."""
    return [
        Person(
            employee_id=int(row["employee_id"]), name=row["name"], email=row["email"], department=row["department"],
            position=row["position"], manager_id=_number(row["manager_id"]), phone=row["phone"],
            new_department=row["new_department"], new_position=row["new_position"],
            new_manager_id=_number(row["new_manager_id"]), event_version=row["event_version"],
        )
        for row in csv.DictReader(lines(limit))
    ]  # fmt: skip


def corrections() -> dict[int, str]:
    """The second file: the right addresses of people whom the first mail did not reach."""
    with (files("jobwell.demo") / "corrections.csv").open("r", encoding="utf-8") as file:
        return {int(row["employee_id"]): row["email"] for row in csv.DictReader(file)}


def refusal(address: str) -> str | None:
    """What a mail server answers to an address for which there is no mailbox; None where there is one."""
    local, _, domain = address.partition("@")
    if domain == REFUSED_DOMAIN:
        return f"550 5.1.2 no such domain: {domain}"
    if local.startswith(GONE_PREFIX):
        return f"550 5.1.1 no such mailbox: {address}"
    return None


def _number(text: str) -> int | None:
    return int(text) if text else None

"""Makes `employees.csv`: `python -m jobwell.demo.make_employees [FILE]` writes the same bytes each time."""

import csv
import random
import sys
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import NamedTuple, TypeVar

from jobwell.demo.names import DEPARTMENTS, FAMILIES, MEN, WOMEN
from jobwell.demo.people import COLUMNS, GONE_PREFIX, PEOPLE, REFUSED_DOMAIN

SEED = 20260128
EVENT = "2026-01-28"
SPAN = 40  # people for each team leader
REFUSED = 0.015
NATIVE = 0.12  # names written as in the passport

T = TypeVar("T")


class Place(NamedTuple):
    """Where someone stands in the company."""

    department: str
    position: str
    manager_id: int | None


def main() -> None:
    """Write the file, by default the one in the package."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("employees.csv")
    target.write_bytes(content().encode())


def content() -> str:
    """The whole file."""
    draw = random.Random(SEED)  # noqa: S311  names, not secrets
    today, tomorrow = _company(draw)
    taken: Counter[str] = Counter()
    out = StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for number, (now, then) in enumerate(zip(today, tomorrow, strict=True), start=1):
        name, email = _named(draw, taken)
        phone = f"+7 700 {number // 10000:03} {number // 100 % 100:02} {number % 100:02}"
        table.writerow([number, name, email, *now, phone, *then, EVENT])
    return out.getvalue()


def _company(draw: random.Random) -> tuple[list[Place], list[Place]]:
    """Today's and tomorrow's places. A manager's number is always below those of their people."""
    count = len(DEPARTMENTS)
    leaders_per = [max(1, round(share * PEOPLE / SPAN)) for _, share, _ in DEPARTMENTS]
    head = {department: 2 + department for department in range(count)}
    today = [Place("Executive Office", "General Director", None)]
    tomorrow = [Place("Executive Office", "Chair of the Board", None)]
    for department in range(count):
        today.append(Place(_name(department), f"Head of {_name(department)}", 1))
        after = (department + 1) % count
        tomorrow.append(Place(_name(after), f"Head of {_name(after)}", 1))
    heads_tomorrow = {(department + 1) % count: number for department, number in head.items()}

    leaders_today: dict[int, list[int]] = {department: [] for department in range(count)}
    leaders_tomorrow: dict[int, list[int]] = {department: [] for department in range(count)}
    for department, leaders in enumerate(leaders_per):
        for turn in range(leaders):
            number = len(today) + 1
            # The first of each goes to the next department, so that none is left without a leader.
            after = (department + 1) % count if turn == 0 else _other(draw, department)
            leaders_today[department].append(number)
            leaders_tomorrow[after].append(number)
            today.append(Place(_name(department), "Team Leader", head[department]))
            tomorrow.append(Place(_name(after), "Team Leader", heads_tomorrow[after]))

    while len(today) < PEOPLE:
        department = _weighted(draw)
        after = _other(draw, department)
        today.append(Place(_name(department), _one(draw, DEPARTMENTS[department][2]), _one(draw, leaders_today[department])))
        tomorrow.append(Place(_name(after), _one(draw, DEPARTMENTS[after][2]), _one(draw, leaders_tomorrow[after])))
    return today, tomorrow


def _named(draw: random.Random, taken: Counter[str]) -> tuple[str, str]:
    woman = draw.random() < 0.5
    given = _one(draw, WOMEN if woman else MEN)
    family = _one(draw, FAMILIES)
    ending = ("a", "\u0430") if woman and family[0].endswith("v") else ("", "")
    spelling = 1 if draw.random() < NATIVE else 0
    name = f"{given[spelling]} {family[spelling]}{ending[spelling]}"
    local = f"{given[0]}.{family[0]}{ending[0]}".lower()
    taken[local] += 1
    if taken[local] > 1:
        local += str(taken[local])
    if draw.random() >= REFUSED:
        return name, f"{local}@corp.example"
    return name, f"{GONE_PREFIX}{local}@corp.example" if draw.random() < 0.5 else f"{local}@{REFUSED_DOMAIN}"


def _name(department: int) -> str:
    return DEPARTMENTS[department][0]


# Only `random()` is promised to give the same numbers in every release of Python.
def _one(draw: random.Random, values: "tuple[T, ...] | list[T]") -> T:
    return values[int(draw.random() * len(values))]


def _weighted(draw: random.Random) -> int:
    left = draw.random() * sum(share for _, share, _ in DEPARTMENTS)
    for department, (_, share, _) in enumerate(DEPARTMENTS):
        left -= share
        if left < 0:
            return department
    return len(DEPARTMENTS) - 1


def _other(draw: random.Random, department: int) -> int:
    while (found := _weighted(draw)) == department:
        pass
    return found


if __name__ == "__main__":
    main()

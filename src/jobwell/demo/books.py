"""The books of the case, balanced from the outside: the file against the employees' rows, the mail sink and the quarantine."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from jobwell.core.report import Wanted
from jobwell.demo.mailbox import REPEATED, Tally
from jobwell.demo.people import Person, refusal
from jobwell.demo.tasks import notify, recalculate
from jobwell.demo.world import World
from jobwell.store import report


@dataclass
class Books:
    """What came of it.

    Attributes:
        employees: how many people the event concerns.
        updated: rows that are as the file says.
        mailed: people whose notice lies in their own mailbox.
        quarantined: people whose notice waits in the quarantine.
        repeated: sends that the sink recognised by their Message-ID and did not deliver again.
        duplicates: second deliveries in a mailbox.
        lost: people who are neither mailed nor in the quarantine.
        urgent_worst_wait_ms: the longest wait of an urgent job until it began.
        overtaken: mails that waited when the urgent jobs came.
        reasons: why notices are in the quarantine.
        failures: the first sentence of the report on failed jobs.
        problems: everything that does not balance, in words.
    """

    employees: int
    updated: int
    mailed: int
    quarantined: int
    repeated: int
    duplicates: int
    lost: int
    seconds: float
    urgent_worst_wait_ms: float | None
    overtaken: int
    reasons: dict[str, int] = field(default_factory=dict)
    failures: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def balanced(self) -> bool:
        """Everyone is accounted for, once."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """The one object of `-o json`."""
        names = ("employees", "updated", "mailed", "quarantined", "repeated", "duplicates", "lost", "seconds")
        return {**{name: getattr(self, name) for name in names}, "balanced": self.balanced,
                "urgent_worst_wait_ms": self.urgent_worst_wait_ms}  # fmt: skip


def balance(world: World, tally: Tally, *, seconds: float, overtaken: int) -> Books:
    """Count and compare."""
    people = world.people
    in_quarantine = world.ask("quarantine")
    held = {employee: code for task, code, employee in in_quarantine if task == notify.name}
    mailed = {person.employee_id for person in people if tally.mailboxes.get(str(person.employee_id)) == {person.email}}
    waits = [wait for (wait,) in world.ask("waits")]
    done = [wait for wait in waits if wait is not None]
    books = Books(
        employees=len(people),
        updated=_updated(world, people),
        mailed=len(mailed),
        quarantined=len(held),
        repeated=tally.counts[REPEATED],
        duplicates=tally.duplicates,
        lost=sum(1 for person in people if person.employee_id not in mailed and person.employee_id not in held),
        seconds=round(seconds, 2),
        urgent_worst_wait_ms=round(max(done) * 1000, 1) if done else None,
        overtaken=overtaken,
        reasons=dict(Counter(held.values()).most_common()),
        failures=report.read(world.database, Wanted(group_by="code"), timedelta(days=1)).sentence(end=""),
    )
    checks = (
        (books.updated == books.employees, f"{books.employees - books.updated} rows are not as the file says"),
        (books.lost == 0, f"{books.lost} people are neither mailed nor in the quarantine"),
        (books.duplicates == 0, f"{books.duplicates} mails were delivered a second time"),
        (not mailed & held.keys(), f"{len(mailed & held.keys())} people are mailed and in the quarantine too"),
        (len(tally.mailboxes) == len(mailed), f"{len(tally.mailboxes) - len(mailed)} people's mail lies in a wrong mailbox"),
        (held.keys() == _refused(people), "the quarantine does not hold exactly the people whose address is refused"),
        (set(books.reasons) <= {"invalid_address"}, f"notices failed for another reason: {books.reasons}"),
        (len(held) == len(in_quarantine), f"{len(in_quarantine) - len(held)} more jobs are in the quarantine"),
        (dict(world.ask("departments", event=people[0].event_version)) == _heads(people), "the report is not that of the file"),
        (world.ask("reports", task=recalculate.name)[0][0] == 1, "the report was not made exactly once"),
        (len(done) == len(waits), f"{len(waits) - len(done)} urgent jobs did not run"),
        (not world.ask("stuck"), "jobs are left over"),
    )
    books.problems = [words for good, words in checks if not good]
    return books


def _updated(world: World, people: list[Person]) -> int:
    rows = {row[0]: row[1:] for row in world.ask("employees")}
    return sum(
        rows.get(person.employee_id) == (person.new_department, person.new_position, person.new_manager_id, person.event_version)
        for person in people
    )


def _refused(people: list[Person]) -> set[int]:
    return {person.employee_id for person in people if refusal(person.email)}


def _heads(people: list[Person]) -> dict[str, int]:
    return dict(Counter(person.new_department for person in people))

"""The books of the case, balanced from the outside: the file against the employees' rows, the mail sink and the run."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobwell.demo.mailbox import REPEATED, Tally
from jobwell.demo.people import Person, refusal
from jobwell.demo.tasks import recalculate
from jobwell.demo.world import World


@dataclass
class Story:
    """What the run told on its way.

    Attributes:
        first, last: how it ended, before and after the retry.
        failed: people whom the mail did not reach at first, and why; `left`: those whom it has not reached after all.
        corrected: their right addresses.
        retried: how many items the retry opened.
        exact: whether its counters were what a recount says, at both ends.
        sentence: the report on its first end.
    """

    first: str = ""
    last: str = ""
    failed: Mapping[int, str] = field(default_factory=dict)
    left: Mapping[int, str] = field(default_factory=dict)
    corrected: Mapping[int, str] = field(default_factory=dict)
    retried: int = 0
    exact: bool = True
    sentence: str = ""


@dataclass
class Books:
    """What came of it.

    Attributes:
        employees: how many people the event concerns.
        updated: rows that are as the file says.
        mailed: people whose notice lies in their own mailbox, at the address that is right in the end.
        failed: people whom the mail did not reach at first.
        retried: of these, how many were tried again, with a right address.
        left: people whose notice has failed after all.
        quarantined: jobs in the quarantine.
        repeated: sends that the sink recognised by their Message-ID and did not deliver again.
        duplicates: second deliveries in a mailbox.
        lost: people who are neither mailed nor known to have failed.
        urgent_worst_wait_ms: the longest wait of an urgent job until it began.
        overtaken: mails that waited when the urgent jobs came.
        reasons: why the mail did not reach people at first.
        sentence: the report on the first end of the run.
        problems: everything that does not balance, in words.
    """

    employees: int
    updated: int
    mailed: int
    failed: int
    retried: int
    left: int
    quarantined: int
    repeated: int
    duplicates: int
    lost: int
    seconds: float
    urgent_worst_wait_ms: float | None
    overtaken: int
    reasons: dict[str, int] = field(default_factory=dict)
    sentence: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def balanced(self) -> bool:
        """Everyone is accounted for, once."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """The one object of `-o json`."""
        names = (
            "employees", "updated", "mailed", "failed", "retried", "left", "quarantined", "repeated", "duplicates", "lost",
            "seconds", "balanced", "urgent_worst_wait_ms",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


def balance(world: World, tally: Tally, story: Story, *, seconds: float, overtaken: int) -> Books:
    """Count and compare."""
    people = world.people
    quarantine = world.ask("quarantine")
    boxes = {person.employee_id: {story.corrected.get(person.employee_id, person.email)} for person in people}
    mailed = {employee for employee, box in boxes.items() if tally.mailboxes.get(str(employee)) == box}
    waits = [wait for (wait,) in world.ask("waits")]
    done = [wait for wait in waits if wait is not None]
    books = Books(
        employees=len(people),
        updated=_updated(world, people),
        mailed=len(mailed),
        failed=len(story.failed),
        retried=story.retried,
        left=len(story.left),
        quarantined=len(quarantine),
        repeated=tally.counts[REPEATED],
        duplicates=tally.duplicates,
        lost=sum(1 for person in people if person.employee_id not in mailed and person.employee_id not in story.left),
        seconds=round(seconds, 2),
        urgent_worst_wait_ms=round(max(done) * 1000, 1) if done else None,
        overtaken=overtaken,
        reasons=dict(Counter(story.failed.values()).most_common()),
        sentence=story.sentence,
    )
    checks = (
        (books.updated == books.employees, f"{books.employees - books.updated} rows are not as the file says"),
        (books.lost == 0, f"{books.lost} people are neither mailed nor known to have failed"),
        (books.duplicates == 0, f"{books.duplicates} mails were delivered a second time"),
        (not mailed & story.left.keys(), f"{len(mailed & story.left.keys())} people are mailed and failed too"),
        (len(tally.mailboxes) == len(mailed), f"{len(tally.mailboxes) - len(mailed)} people's mail lies in a wrong mailbox"),
        (story.failed.keys() == _refused(people), "those who failed are not exactly the people whose address is refused"),
        (set(books.reasons) <= {"invalid_address"}, f"notices failed for another reason: {books.reasons}"),
        (books.retried == books.failed, f"{books.retried} items were tried again, of {books.failed} that had failed"),
        (story.first == _end(books.failed), f"the run ended as {story.first} at first"),
        (story.last == _end(books.left), f"the run ended as {story.last} after the retry"),
        (story.exact, "the counters of the run are not what a recount of its items says"),
        (books.quarantined == 0, f"{books.quarantined} jobs are in the quarantine"),
        (dict(world.ask("departments", event=people[0].event_version)) == _heads(people), "the report is not that of the file"),
        (world.ask("reports", task=recalculate.task.name)[0][0] == 1, "the report was not made exactly once"),
        (len(done) == len(waits), f"{len(waits) - len(done)} urgent jobs did not run"),
        (not world.ask("stuck"), "jobs are left over"),
    )
    books.problems = [words for good, words in checks if not good]
    return books


def _end(failed: int) -> str:
    return "completed_with_errors" if failed else "completed"


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

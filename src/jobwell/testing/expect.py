"""What was enqueued, compared with what was expected; a difference is told so that a person sees it."""

import dataclasses
import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from jobwell.core import duration
from jobwell.core.duration import Duration
from jobwell.testing.errors import TestbedError
from jobwell.testing.views import JobView, short

__tracebackhide__ = True  # pytest shows the test and the task, not what is between

TOLD = 5  # jobs in a message
MOST = 12  # lines about one argument
CLOSE = timedelta(seconds=1)  # for due times
Args = Mapping[str, Any] | Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Which jobs are meant; None means any.

    Attributes:
        args: some of the arguments (a value may be anything that compares: `ANY`, `pytest.approx(…)`), or a function that
            is given all of them and says whether they fit.
        run_after: a duration from the enqueue, or a moment; within a second.
    """

    task: str | None
    args: Args | None = None
    queue: str | None = None
    run_after: Duration | datetime | None = None
    tenant: str | None = None
    priority: int | None = None
    state: str | None = None

    def differences(self, job: JobView) -> list[str]:
        """In words; empty, where the job is meant."""
        if self.task not in (None, job.task):
            return [f"task: expected {self.task}, was {job.task}"]
        found = []
        for name, wanted in (
            ("queue", self.queue), ("tenant", self.tenant), ("priority", self.priority),
            ("state", self.state),
        ):  # fmt: skip
            if wanted is not None and wanted != getattr(job, name):
                found.append(f"{name}: expected {short(wanted)}, was {short(getattr(job, name))}")
        if self.run_after is not None:
            due = self.run_after if isinstance(self.run_after, datetime) else job.enqueued_at + _delay(self.run_after)
            if abs(job.run_at - due) > CLOSE:
                found.append(f"due: expected {due.isoformat()}, was {job.run_at.isoformat()}")
        return found + self._in_args(job.args)

    def _in_args(self, args: dict[str, Any]) -> list[str]:
        if self.args is None:
            return []
        if not isinstance(self.args, Mapping):
            return [] if self.args(args) else [f"arguments: {short(self.args)} does not accept them"]
        found = []
        for name, wanted in self.args.items():
            if name not in args:
                found.append(f"{name}: expected {short(wanted)}, was not given")
            elif not bool(wanted == args[name]):
                found += _apart(name, wanted, args[name])
        return found

    def __str__(self) -> str:
        parts = []
        if isinstance(self.args, Mapping):
            parts += [f"{name}={short(value)}" for name, value in self.args.items()]
        elif self.args is not None:
            parts.append(f"arguments that fit {short(self.args)}")
        for name in ("queue", "run_after", "tenant", "priority", "state"):
            if getattr(self, name) is not None:
                parts.append(f"{name}={short(getattr(self, name))}")
        return (self.task or "any task") + (f" with {', '.join(parts)}" if parts else "")


def _delay(value: Duration) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(seconds=duration.seconds(value, "run_after"))


def _apart(name: str, wanted: Any, was: Any) -> list[str]:
    """Where two values differ: in an object its fields, in a list its places, in long texts and other lists the lines."""
    if wanted is NOTHING or was is NOTHING:
        return [f"{name}: expected {short(wanted)}, was {short(was)}"]
    if type(wanted) is not type(was):
        return [f"{name}: expected {short(wanted)}, was {short(was)} ({type(wanted).__name__}, {type(was).__name__})"]
    if isinstance(wanted, list) and len(wanted) == len(was):
        pairs = [(f"{name}[{at}]", *pair) for at, pair in enumerate(zip(wanted, was, strict=True))]
    else:
        left, right = _fields(wanted), _fields(was)
        pairs = [(f"{name}.{key}", left.get(key, NOTHING), right.get(key, NOTHING)) for key in dict.fromkeys((*left, *right))]
    inside = [line for place, one, other in pairs if not bool(one == other) for line in _apart(place, one, other)]
    if inside:
        return inside[:MOST]
    if isinstance(wanted, list | str) and max(len(repr(wanted)), len(repr(was))) > 40:
        before, after = (value.splitlines() if isinstance(value, str) else list(map(repr, value)) for value in (wanted, was))
        lines = [line for line in difflib.ndiff(before, after) if line[0] in "-+"]
        return [f"{name}: - expected, + was", *(f"  {short(line, 100)[1:-1]}" for line in lines[:MOST])]
    return [f"{name}: expected {short(wanted)}, was {short(was)}"]


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


def _fields(value: Any) -> dict[str, Any]:
    """What an object is made of; empty, where that is not known."""
    if isinstance(value, dict):
        return {str(key): entry for key, entry in value.items()}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {name: getattr(value, name) for name in getattr(type(value), "model_fields", {})}


def matching(expected: Expected, jobs: Sequence[JobView], known: Sequence[str]) -> list[JobView]:
    """Those that are meant.

    Raises:
        TestbedError: no task has that name, so that the expectation could never be told from a slip of the pen.
    """
    if expected.task is not None and expected.task not in known and not any(job.task == expected.task for job in jobs):
        near = difflib.get_close_matches(expected.task, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(known) or 'none'}"
        raise TestbedError(f"the app has no task {expected.task!r}{hint}")
    return [job for job in jobs if not expected.differences(job)]


def check(expected: Expected, count: int | None, jobs: Sequence[JobView], known: Sequence[str]) -> list[JobView]:
    """Give what is meant.

    Raises:
        AssertionError: there are not so many of them; the message shows what was enqueued, nearest first.
    """
    found = matching(expected, jobs, known)
    if (found and count is None) or len(found) == count:
        return found
    wanted = "at least one" if count is None else str(count)
    lines = [f"expected {wanted} of {expected}; enqueued: {len(found) or 'none'}"]
    lines += _told(expected, found, jobs)
    raise AssertionError("\n".join(lines))


def refute(expected: Expected, jobs: Sequence[JobView], known: Sequence[str]) -> None:
    """There must be none.

    Raises:
        AssertionError: with those that are there.
    """
    found = matching(expected, jobs, known)
    if found:
        lines = [f"expected none of {expected}; enqueued: {len(found)}", *(f"  {job}" for job in found[:TOLD])]
        raise AssertionError("\n".join([*lines, *_more(len(found))]))


def _told(expected: Expected, found: Sequence[JobView], jobs: Sequence[JobView]) -> list[str]:
    if not jobs:
        return ["  nothing at all was enqueued (in a transaction that has not committed, nothing is there yet)"]
    lines = [f"  fits: {job}" for job in found[:TOLD]]
    of_task = [job for job in jobs if expected.task in (None, job.task) and job not in found]
    nearest = sorted(of_task, key=lambda job: len(expected.differences(job)))
    for job in nearest[:TOLD]:
        lines += [f"  {job}", *(f"      {difference}" for difference in expected.differences(job))]
    lines += _more(len(nearest))
    others = Counter(job.task for job in jobs if expected.task not in (None, job.task))
    if others:
        lines.append(f"  of other tasks: {', '.join(f'{task} ({count})' for task, count in others.most_common(TOLD))}")
    return lines


def _more(there: int) -> list[str]:
    return [f"  … and {there - TOLD} more"] if there > TOLD else []

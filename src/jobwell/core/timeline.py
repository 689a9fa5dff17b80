"""What happened to a job, step by step: who enqueued it, each attempt and what came of it, what people did. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import orjson

from jobwell.core.duration import text
from jobwell.core.follow import KEY, Followed

ACTIONS: Final = {
    "jobs.enqueue": "enqueued it by hand",
    "jobs.cancel": "cancelled it",
    "jobs.retry": "asked for the next attempt now",
    "jobs.priority": "changed its priority",
    "quarantine.retry": "took it back from the quarantine",
    "quarantine.discard": "gave it up",
    "steps.answer": "said what became of a step",
    "jobs.restart": "let it begin again from a step",
}
TOLD: Final = 200  # characters of an error
_PATIENCE = timedelta(seconds=1)  # within which a job that is due at once is claimed or not; no step of its own


@dataclass(frozen=True)
class Action:
    """What a person did, as the audit has it."""

    at: datetime
    actor: str
    action: str
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class Event:
    """One step.

    Attributes:
        at: when.
        event: enqueued, due, began, the outcome of an attempt (succeeded, failed, retrying, snoozed, released, crashed, lost,
            cancelled), step, quarantined, discarded, or action.
        text: a line for people.
        facts: for programs.
    """

    at: datetime
    event: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As data."""
        return {"at": self.at.astimezone(UTC), "event": self.event, "text": self.text, **self.facts}


def came(found: Mapping[str, Any]) -> datetime:
    """When a job was enqueued first: a retry from the quarantine counts as enqueued anew, and the id keeps the first time."""
    id: UUID = found["id"]
    enqueued: datetime = found["enqueued_at"]
    known = [row["started_at"] or row["ended_at"] for row in found["attempts"]]
    if not known or min(known) >= enqueued or id.version != 7:
        return enqueued
    first: datetime = min(known)
    return min(datetime.fromtimestamp((id.int >> 80) / 1000, UTC), first)  # the producer's clock may be ahead


def timeline(
    found: Mapping[str, Any],
    *,
    actions: Sequence[Action] = (),
    workers: Mapping[UUID, str] | None = None,
    steps: Sequence[Mapping[str, Any]] = (),
) -> list[Event]:
    """All steps, in order.

    Args:
        found: the job with its attempts, as the store reads it.
        actions: of people, on this job.
        workers: what is still known about workers: "name on host".
        steps: as the store reads them.
    """
    events = [_enqueued(found, actions)]
    attempts = found["attempts"]
    if found["meta"] and KEY in found["meta"]:
        if not any(row["next_at"] for row in attempts) and (found["ended_at"] is None or found["run_at"] <= found["ended_at"]):
            events.append(_released(found))
    elif not any(row["next_at"] for row in attempts) and found["run_at"] - found["enqueued_at"] > _PATIENCE:
        paced = any(action.detail.get("pace") for action in actions)
        if found["ended_at"] is None or found["run_at"] <= found["ended_at"]:
            events.append(Event(found["run_at"], "due", "due, in its turn" if paced else "due, as its caller asked"))
    elif found["state"] in ("scheduled", "retrying"):
        events.append(Event(found["run_at"], "due", "due for the next attempt"))
    for row in attempts:
        events += _attempt(row, workers or {})
    events += _current(found, workers or {})
    for step in steps:
        events += _step(step, running=found["state"] == "running")
    for action in actions:
        if action.action != "jobs.enqueue":
            events.append(_acted(action))
    order = {"action": 1, "began": 2}
    # The end stands last, though the clock was read for it a moment before it was for the attempt or the audit.
    return [events[0], *sorted(events[1:], key=lambda event: (event.at, order.get(event.event, 3))), *_end(found)]


def _enqueued(found: Mapping[str, Any], actions: Sequence[Action]) -> Event:
    meta = orjson.loads(found["meta"]) if found["meta"] else {}
    by, parent = meta.get("initiator"), meta.get("parent")
    hand = next((action for action in actions if action.action == "jobs.enqueue"), None)
    first = next((row["queue"] for row in found["attempts"] if row["queue"] is not None), found["queue"])
    words = f"enqueued into {first}"
    words += f" by {by}" if by else ""
    words += " by hand" if hand else ""
    words += f", from job {parent}" if parent else ""
    return Event(came(found), "enqueued", words, {"by": by, "parent": parent})


def _released(found: Mapping[str, Any]) -> Event:
    told = Followed.read(found["meta"])
    counts = ((told.succeeded, "succeeded"), (told.failed, "failed"), (told.cancelled, "cancelled"))
    words = ", ".join(f"{count:,} {how}" for count, how in counts if count)
    return Event(found["run_at"], "due", f"due, after what it followed: {words or 'nothing'}")


def _attempt(row: Mapping[str, Any], workers: Mapping[UUID, str]) -> Iterator[Event]:
    """Its beginning and its end; one that ended before it began has no beginning."""
    started, ended = row["started_at"], row["ended_at"]
    facts = {"attempt": row["attempt"], "worker": row["worker"]}
    if started is not None:
        yield _began(started, facts, workers)
    took = (ended - started).total_seconds() if started is not None else None
    wait = (row["next_at"] - ended).total_seconds() if row["next_at"] is not None else None
    error = _line(": ".join(filter(None, (row["error_type"], row["message"]))))
    words = [f"attempt {row['attempt']} {row['outcome']}" + (f" after {text(took)}" if took is not None else "")]
    words += [error] if error else []
    words += [row["note"]] if row["note"] and row["outcome"] != "failed" else []  # there it is the reason, told by the quarantine
    if wait is not None:
        words.append(f"again in {text(wait)}" if wait >= 0.0005 else "again at once")
    told = {name: row[name] for name in ("kind", "error_type", "message", "origin", "note", "next_at")}
    yield Event(ended, row["outcome"], " · ".join(words), {**facts, "seconds": took, "wait_seconds": wait, **told})


def _began(at: datetime, facts: Mapping[str, Any], workers: Mapping[UUID, str]) -> Event:
    worker = facts["worker"]
    where = f" on {workers.get(worker, f'worker {worker}')}" if worker is not None else ""
    return Event(at, "began", f"attempt {facts['attempt']} began{where}", facts)


def _current(found: Mapping[str, Any], workers: Mapping[UUID, str]) -> Iterator[Event]:
    """The attempt that has no row of its own: the one that runs, or that simply succeeded."""
    started, ended, state = found["started_at"], found["ended_at"], found["state"]
    if started is None or state not in ("running", "succeeded"):
        return
    if any(row["started_at"] == started for row in found["attempts"]):
        return
    facts = {"attempt": found["attempt"], "worker": found["worker"]}
    yield _began(started, facts, workers)
    if state == "succeeded":
        took = (ended - started).total_seconds()
        yield Event(ended, "succeeded", f"attempt {found['attempt']} succeeded after {text(took)}", {**facts, "seconds": took})


def _step(row: Mapping[str, Any], *, running: bool) -> Iterator[Event]:
    """When it was begun last, when it was done, and when it was undone."""
    facts = {"step": row["name"], "state": row["state"], "attempt": row["attempt"], "undo": row["undo_id"]}
    words = f"step {row['name']!r} begun by attempt {row['attempt']}"
    if row["done_at"] is None:
        note = f" · {_line(row['note'])}" if row["note"] else ""
        yield Event(row["started_at"], "step", f"{words}; {'under way' if running else 'its outcome is not known'}{note}", facts)
        return
    yield Event(row["started_at"], "step", words, facts)
    note = _line(row["note"]) if row["note"] and row["state"] != "left" else ""
    took = text((row["done_at"] - row["started_at"]).total_seconds())
    told = note if note.startswith("happened, ") else f"done after {took}" + (f" · {note}" if note else "")
    yield Event(row["done_at"], "step", f"step {row['name']!r} {told}", facts)
    if row["undo_id"] is not None and row["undone_at"] is None:
        at = datetime.fromtimestamp((row["undo_id"].int >> 80) / 1000, UTC)  # the id was made then, by the store
        yield Event(at, "step", f"step {row['name']!r} is being undone by job {row['undo_id']}", facts)
    if row["undone_at"] is not None:
        how = "undone" if row["state"] == "compensated" else f"left as it is: {_line(row['note'] or '')}"
        yield Event(row["undone_at"], "step", f"step {row['name']!r} {how} (job {row['undo_id']})", facts)


def _acted(action: Action) -> Event:
    why, to = action.detail.get("why"), action.detail.get("to")
    words = f"{action.actor} {ACTIONS.get(action.action, action.action)}"
    words += f" to {to}" if to is not None else ""
    if action.detail.get("edited"):
        words += f" with other arguments ({', '.join(map(str, action.detail['edited']))})"
    if action.detail.get("pace"):
        words += f", {action.detail['pace']:g} jobs a second"
    if action.detail.get("step"):
        happened = action.detail.get("happened")
        words += f", {action.detail['step']!r}" + (
            "" if happened is None else ": it happened" if happened else ": it did not happen"
        )
    words += f": {_line(why)}" if why else ""
    return Event(action.at, "action", words, {"action": action.action, "actor": action.actor, "why": why})


def _end(found: Mapping[str, Any]) -> Iterator[Event]:
    """Where it stands for good, if no attempt tells it."""
    ended = found["ended_at"]
    if found["state"] == "failed" and found["reason"] is not None:
        code = f", code {found['code']}" if found["code"] else ""
        words = f"quarantine: {found['reason']}{code}"
        told = any(row["outcome"] in ("failed", "retrying") for row in found["attempts"])
        words += f" · {_line(found['message'])}" if found["message"] and not told else ""
        yield Event(ended, "quarantined", words, {"reason": found["reason"], "code": found["code"]})
    elif found["state"] == "failed" and ended is not None:
        yield Event(ended, "discarded", f"over: {_line(found['note'])}" if found["note"] else "over", {"note": found["note"]})
    elif found["state"] == "cancelled" and not any(row["outcome"] == "cancelled" for row in found["attempts"]):
        words = f"cancelled while it waited: {found['note']}" if found["note"] else "cancelled while it waited"
        yield Event(ended, "cancelled", words, {"note": found["note"]})


def _line(value: str) -> str:
    said = value.strip().split("\n", 1)[0]
    return said if len(said) <= TOLD else f"{said[: TOLD - 1]}…"

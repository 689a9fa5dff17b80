"""Where the next attempt runs: a retry may go to another queue, or have another priority. Pure."""

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from jobwell.core.errors import DeclarationError
from jobwell.core.ranks import HIGHEST, rank_of
from jobwell.core.text import clean

WISH_SHOWN = 100  # characters of a wish that cannot be followed


@dataclass(frozen=True, init=False)
class Elsewhere:
    """The part of a retry rule that says where its retries run.

    Attributes:
        queue: None: where the job stands.
        priority: None: as it has it.
        from_attempt: the first attempt that runs there.
    """

    queue: str | None
    priority: int | None
    from_attempt: int

    def _says(self, queue: str | None, priority: int | None, from_attempt: int) -> None:
        if queue is not None and not isinstance(queue, str):
            raise DeclarationError(f"queue={queue!r} must be the name of a queue that the app declares")
        if priority is not None:
            rank_of(priority)
        if isinstance(from_attempt, bool) or not isinstance(from_attempt, int) or not 2 <= from_attempt <= 1000:
            raise DeclarationError(f"from_attempt={from_attempt!r} must be a whole number from 2 (the first retry) to 1000")
        if from_attempt > 2 and queue is None and priority is None:
            raise DeclarationError(f"from_attempt={from_attempt} says when, and neither queue= nor priority= says where to")
        plain = None if queue is None else str.__str__(queue)  # of an enum too
        for name, value in (("queue", plain), ("priority", priority), ("from_attempt", from_attempt)):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job stands, or is to stand.

    Attributes:
        note: what there is to say about a change.
    """

    queue: str | None = None
    priority: int | None = None
    note: str | None = None


STAYS = Place()


def going(rule: Elsewhere, *, failures: int, wish: object, at_queue: str, at_rank: int, queues: Collection[str]) -> Place:
    """Where the next attempt runs: as what was raised asks for it, or else as the rule says. Only what changes is named.

    Args:
        rule: that fits the error.
        failures: how often the job has failed, this one included.
        wish: what was raised: its `queue` and `priority` are asked for, if it has them.
        at_queue: where the job stands.
        at_rank: its rank.
        queues: that the app declares. A wish for any other one is not followed, with a note: no worker would look there.
    """
    planned = failures + 1 >= rule.from_attempt
    queue, not_queue = _queue(getattr(wish, "queue", None), queues)
    priority, not_priority = _priority(getattr(wish, "priority", None))
    queue = queue if queue is not None or not_queue or not planned else rule.queue
    priority = priority if priority is not None or not_priority or not planned else rule.priority
    queue = None if queue == at_queue else queue
    priority = None if priority is not None and HIGHEST - priority == at_rank else priority
    if queue is None and priority is None and not not_queue and not not_priority:
        return STAYS
    words = f"goes to {queue}" if queue is not None else ""
    if priority is not None:
        words += f"{' at' if words else 'gets'} priority {priority}"
    return Place(queue, priority, "; ".join(filter(None, (words, not_queue, not_priority))))


def _queue(wish: Any, queues: Collection[str]) -> tuple[str | None, str]:
    if wish is None:
        return None, ""
    named = str.__str__(wish) if isinstance(wish, str) else ""
    if named in queues:
        return named, ""
    near = difflib.get_close_matches(named, queues, n=1)
    hint = f" (did it mean {near[0]!r}?)" if near else ""
    return None, f"it stays in its queue: it asked for {_shown(wish)}, which the app does not declare{hint}"


def _priority(wish: Any) -> tuple[int | None, str]:
    if wish is None:
        return None, ""
    try:
        rank_of(wish)
    except DeclarationError:
        return None, f"it keeps its priority: it asked for {_shown(wish)}, which is no whole number from -100 to 100"
    return int(wish), ""


def _shown(wish: Any) -> str:
    try:
        return clean(repr(wish), WISH_SHOWN)
    except Exception:  # noqa: BLE001  whatever a task asks with, its wish must not cost the job
        return f"a {type(wish).__name__}"

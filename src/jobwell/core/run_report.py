"""What a report on a run says: the sentence, and the columns of its lists. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from jobwell.core.duration import text
from jobwell.core.runs import BadRow, Card, ItemError, Pace

ERROR_COLUMNS: Final = ("key", "stage", "code", "message", "attempt", "at")
RESULT_COLUMNS: Final = ("no", "key")
RESULT_ENDS: Final = ("code", "message", "at")
BAD_COLUMNS: Final = ("row", "field", "reason", "value")
REASONS_TOLD: Final = 200


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """A report without its lists.

    Attributes:
        reasons: (stage, code, how many), the most frequent first.
        pace: when items came to an end.
        made_at: the database's time.
        bad: rows that do not fit, as far as they are told.
        fields: the names of the fields of its items.
    """

    card: Card
    pace: Pace
    made_at: datetime
    reasons: Sequence[tuple[str, str | None, int]] = ()
    bad: Sequence[BadRow] = ()
    fields: Sequence[str] = field(default_factory=list)

    def sentence(self) -> str:
        """What became of it, in words."""
        card = self.card
        name = f"{card.operation} {card.key}" if card.key else f"{card.operation} of {card.created_at:%Y-%m-%d %H:%M} UTC"
        said = f"{name} {state_words(card)}: {count(card.total, 'item')}"
        for one in card.stages:
            parts = [f"{one.done:,} done"]
            parts += [f"{number:,} {word}" for word in ("failed", "skipped", "cancelled") if (number := getattr(one, word))]
            parts += [f"{one.open:,} open"] if one.open > 0 and not one.ended else []
            said += f"; {one.name} {', '.join(parts)}"
        if self.reasons:
            told = [f"{number:,} {code or 'without a code'}" for _, code, number in self.reasons[:3]]
            more = len(self.reasons) - len(told)
            said += f". Why items failed: {', '.join(told)}" + (f" and {more} more reasons" if more else "")
        if card.bad_rows:
            said += f". {count(card.bad_rows, 'row')} of the input did not fit"
        if card.ended_at is not None:
            said += f". It took {text((card.ended_at - (card.started_at or card.created_at)).total_seconds())}"
        return f"{said}."

    def as_json(self) -> dict[str, Any]:
        """For programs, without its lists."""
        return {
            "sentence": self.sentence(), "made_at": self.made_at, "run": asdict(self.card),
            "reasons": [{"stage": stage, "code": code, "items": number} for stage, code, number in self.reasons],
            "bad_rows": [asdict(row) for row in self.bad], "pace": asdict(self.pace),
        }  # fmt: skip


def state_words(card: Card) -> str:
    """Its status as the end of a sentence."""
    words = {
        "queued": "waits", "running": "is running", "paused": "is paused", "completed": "is completed",
        "completed_with_errors": "is completed with errors", "cancelled": "is cancelled",
    }  # fmt: skip
    return words[card.status]


def count(number: int, thing: str) -> str:
    """One item, or many."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def titles(fields: Sequence[str], taken: Sequence[str]) -> list[str]:
    """What the columns of an item's fields are called, beside our own."""
    return [f"item.{name}" if name in taken else name for name in fields]


def error_row(one: ItemError, fields: Sequence[str]) -> list[Any]:
    """A failed item as a row: our columns, then its fields."""
    return [one.key, one.stage, one.code, one.message, one.attempt, one.at, *(one.data.get(name) for name in fields)]


def result_row(row: dict[str, Any], stages: Sequence[str], fields: Sequence[str]) -> list[Any]:
    """An item as a row: its state in every stage, why, and its fields."""
    states = row["states"]
    ends = [row[name] for name in RESULT_ENDS]
    return [row["no"], row["key"], *(states[name] for name in stages), *ends, *(row["data"].get(name) for name in fields)]

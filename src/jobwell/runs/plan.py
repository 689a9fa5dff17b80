"""A dry run: all items read and checked, nothing stored."""

from dataclasses import dataclass
from typing import Any

from jobwell.core.runs import BadRow
from jobwell.runs.shape import Filling, ItemShape


@dataclass(frozen=True, slots=True)
class Plan:
    """What a dry run says: nothing was stored.

    Attributes:
        items: that would be taken.
        duplicates: of keys that came before.
        bad: rows that do not fit; `bad_rows` lists the first ten thousand.
        jobs: of each stage, how many there would be.
        starts: whether the run would start: with bad rows only where `on_bad="skip"`.
    """

    items: int
    duplicates: int
    bad: int
    bad_rows: tuple[BadRow, ...]
    jobs: dict[str, int]
    starts: bool


class Counting(Filling):
    """Counts what would be stored. Of keys it holds hashes: eight bytes and their place in a set."""

    def __init__(self, shape: ItemShape) -> None:
        super().__init__(shape)
        self.items = self.duplicates = self.bad = 0
        self.bad_rows: list[BadRow] = []
        self._seen: set[int] = set()

    def add(self, value: Any) -> bool:
        """Take a row."""
        if super().add(value):
            self.take()
        return False

    def take(self) -> Any:
        """Count the block."""
        block = super().take()
        new = {hash(key) for key in block.keys}
        fresh = len(new - self._seen)
        self._seen |= new
        self.items += fresh
        self.duplicates += block.duplicates + len(block.keys) - fresh
        self.bad += block.bad_count
        self.bad_rows += block.bad
        return block

"""The mail sink's journal: one JSON line for each thing that happened, in a file that other processes read."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

FILE: Final = "journal.jsonl"
DELIVERED, REPEATED, DEFERRED, REFUSED = "delivered", "repeated", "deferred", "refused"


class Journal:
    """Appends to the journal of a mailbox folder. A line is in the file before the answer goes out.

    Args:
        folder: created when missing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, what: str, **facts: str) -> None:
        """Write one line."""
        os.write(self._handle, json.dumps({"what": what, **facts}, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


class Reader:
    """Reads a journal that grows.

    Args:
        folder: the sink's.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._at = 0

    def new(self) -> Iterator[dict[str, Any]]:
        """What has come since the last call. A line that is still being written waits for the next one."""
        try:
            with self._file.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data.rfind(b"\n") + 1
        self._at += whole
        for line in data[:whole].splitlines():
            yield json.loads(line)


@dataclass
class Tally:
    """What a journal amounts to.

    Attributes:
        mailboxes: employee → the mailboxes in which their mail lies; a mail for two mailboxes would stand out.
        deliveries: (mailbox, employee, event) → how often that news was delivered there, under any Message-ID.
        refused: employees whose address was refused for good.
    """

    counts: Counter[str] = field(default_factory=Counter)
    mailboxes: dict[str, set[str]] = field(default_factory=dict)
    deliveries: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    refused: set[str] = field(default_factory=set)

    def add(self, entry: dict[str, Any]) -> None:
        """Count one line of the journal."""
        self.counts[entry["what"]] += 1
        if entry["what"] == DELIVERED:
            self.mailboxes.setdefault(entry["employee"], set()).add(entry["mailbox"])
            self.deliveries[entry["mailbox"], entry["employee"], entry["event"]] += 1
        elif entry["what"] == REFUSED:
            self.refused.add(entry["mailbox"])

    @property
    def duplicates(self) -> int:
        """Second deliveries in a mailbox."""
        return sum(count - 1 for count in self.deliveries.values())

"""Memory: above a limit heavy tasks wait, so that the process is not the one that the system kills."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

import psutil

from jobwell.core.size import MemoryLimit, text

log = logging.getLogger("jobwell.worker")

CGROUP = Path("/sys/fs/cgroup")
AGAIN = 0.95  # of the limit: below it heavy tasks begin again, so that the edge is not crossed at each look


class Memory:
    """Whether there is room for heavy tasks.

    Args:
        limit: a part of what the machine, or the container, has; or bytes of this process and its children.
        read: tells the value to compare with it.
    """

    def __init__(self, limit: MemoryLimit, read: Callable[[MemoryLimit], float] | None = None) -> None:
        self._limit = limit
        self._read = read or measure
        self.high = False
        self.said = ""

    async def look(self) -> bool:
        """Measure. Returns whether heavy tasks may begin again that could not before."""
        found = await asyncio.to_thread(self._read, self._limit)
        if not self.high and found > self._limit.value:
            self.high = True
            self.said = f"the memory in use, {self._shown(found)}, is above memory_high={self._limit}"
            log.warning("%s: tasks with a cost or a memory limit are not begun until it is below", self.said)
        elif self.high and found <= self._limit.value * AGAIN:
            self.high, self.said = False, ""
            log.info("the memory in use is %s: tasks with a cost or a memory limit begin again", self._shown(found))
            return True
        return False

    def _shown(self, found: float) -> str:
        return f"{found:.0%}" if self._limit.part else text(int(found))


def measure(limit: MemoryLimit) -> float:
    """The part in use of the memory of machine or container, whichever is fuller; or bytes of this process and its children."""
    if limit.part:
        return max(psutil.virtual_memory().percent / 100, _contained(CGROUP))
    own, total = psutil.Process(), 0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it ends just now
            total += process.memory_info().rss
    return float(total)


def _contained(folder: Path) -> float:
    """The part in use of what the container may have; 0 where it has no limit. What is only a cache of files can be let go."""
    try:
        most = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        facts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return 0.0 if most == "max" else max(0, used - int(facts.get("inactive_file", 0))) / int(most)
    except (OSError, ValueError):  # no control groups, or an older kind
        return 0.0

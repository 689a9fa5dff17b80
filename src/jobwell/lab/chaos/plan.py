"""What goes wrong, and when. One random number generator decides; the same seed gives the same plan."""

from dataclasses import dataclass
from random import Random

LEASE = 2.5  # seconds: short, so that rescue happens often


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        at: seconds from the start.
        kind: a key of `KINDS`.
        target: which one: taken modulo what there is at that moment.
        seconds: for how long, where it lasts.
        seed: for what is drawn when it happens.
    """

    at: float
    kind: str
    target: int
    seconds: float
    seed: int


# How often a minute, and for how long (from, to).
KINDS: dict[str, tuple[float, float, float]] = {
    "worker kill": (6, 0, 0),
    "worker stop": (5, 0.1, LEASE * 0.7),
    "worker long stop": (3, LEASE + 1, LEASE * 2.5),
    "worker term": (4, 0, 0),
    "child kill": (4, 0, 0),
    "child stop": (2, 0.2, LEASE * 1.5),
    "supervisor kill": (2, 0, 0),
    "supervisor stop": (1, 0.5, LEASE * 1.5),
    "supervisor term": (2, 0, 0),
    "backends": (4, 2, 5),
    "server fast restart": (1, 0, 1.5),
    "server immediate restart": (1, 0, 1.5),
    "stall": (3, 0.2, LEASE * 0.7),
    "long stall": (2, LEASE + 1, LEASE * 2.5),
    "cut": (3, 0, LEASE),
    "late outcome": (3, 0.2, 1.5),
    "pause": (6, 0.5, 4),
    "cancel": (30, 0, 0),
    "run now": (10, 0, 0),
}


def plan(random: Random, seconds: float) -> list[Fault]:
    """Draw the faults of a run: of each kind at least one, none in the first second.

    Args:
        random: decides.
        seconds: how long the run is.
    """
    faults = []
    for kind, (a_minute, shortest, longest) in KINDS.items():
        for _ in range(max(1, round(a_minute * seconds / 60))):
            at = random.uniform(min(1.0, seconds / 10), seconds)
            lasts = random.uniform(shortest, longest)
            faults.append(Fault(round(at, 3), kind, random.randrange(1000), round(lasts, 3), random.randrange(2**32)))
    return sorted(faults)

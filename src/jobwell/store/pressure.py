"""How long queues with a limit are."""

from collections.abc import Mapping
from typing import NamedTuple

from jobwell.store.statements import Program, Statements


class Length(NamedTuple):
    """A figure that all producers share.

    Attributes:
        jobs: ready ones, counted up to the cap.
        fresh_for: seconds for which nobody will count anew.
        age: seconds since the count began; what was committed later is not in it.
    """

    jobs: int
    fresh_for: float
    age: float


def lengths(statements: Statements, caps: Mapping[str, int]) -> Program[dict[str, Length]]:
    """Of these queues, each counted up to its cap. To be run in a transaction of its own: it may write the figure down."""
    rows = yield statements("pressure.lengths", queues=list(caps), caps=list(caps.values()))
    return {queue: Length(*figure) for queue, *figure in rows}

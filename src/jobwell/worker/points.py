"""Named moments in which a process may die, for the tests that make it die there. Nothing happens at them otherwise."""

from collections.abc import Callable

POINTS = (
    "save: before", "save: after",
    "transaction: begun", "transaction: before the end", "transaction: before commit", "transaction: committed",
    "transaction: told",
)  # fmt: skip
_armed: dict[str, Callable[[], None]] = {}


def reached(point: str) -> None:
    """It is reached."""
    if _armed:
        _armed.get(point, lambda: None)()


def arm(point: str, call: Callable[[], None]) -> None:
    """Call this whenever a point is reached, in this process."""
    if point not in POINTS:
        raise ValueError(f"there is no point {point!r}")
    _armed[point] = call


def disarm() -> None:
    """All of them."""
    _armed.clear()

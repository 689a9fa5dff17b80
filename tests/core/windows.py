"""Rates once more, in Python: what the store's functions are held against, and what must come true of any times of claims."""

from collections.abc import Iterable, Sequence
from math import floor

from jobwell.core.limits import Rate


def room(rates: Sequence[Rate], due: Sequence[float], now: float, most: int) -> tuple[int, float]:
    """How many more jobs now, and the seconds until the next one. `due`: for each window, when the next job would be on time."""
    free, wait = most, 0.0
    for rate, at in zip(rates, due, strict=True):
        behind = rate.slack - max(0.0, at - now)
        if behind < 0:
            free, wait = 0, max(wait, -behind)
        else:
            free = min(free, floor(behind / rate.every) + 1)
    return free, wait


def charged(rates: Sequence[Rate], due: Sequence[float], now: float, jobs: int) -> list[float]:
    """The windows after so many jobs more."""
    return [max(at, now) + rate.every * jobs for rate, at in zip(rates, due, strict=True)]


def starts(rates: Sequence[Rate], asks: Iterable[tuple[float, int]]) -> list[float]:
    """The starts that claims at these times are allowed, each of which wants so many jobs."""
    due, found = [float("-inf")] * len(rates), list[float]()
    for now, want in asks:
        got, _ = room(rates, due, now, want)
        if got > 0:
            found += [now] * got
            due = charged(rates, due, now, got)
    return found


def fullest(starts: Sequence[float], seconds: float) -> int:
    """Of all windows of so many seconds, how many starts the fullest one holds."""
    most, first = 0, 0
    for last, at in enumerate(starts):
        while starts[first] <= at - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most

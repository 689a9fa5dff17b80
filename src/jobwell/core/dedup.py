"""Equal jobs: what makes them equal, for how long, and what becomes of the second one."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jobwell.core.duration import Duration, seconds
from jobwell.core.errors import DeclarationError

Until = Literal["done", "started"]
OnConflict = Literal["skip", "replace", "debounce", "reject"]
CONFLICTS: tuple[OnConflict, ...] = ("skip", "replace", "debounce", "reject")
LONGEST_KEY = 200  # letters of one that a caller gives
LONGEST_WINDOW = 3660 * 86400.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,199}")


@dataclass(frozen=True, init=False)
class Dedup:
    """Only one: of all jobs with the same values of these parameters a second one is not enqueued while the first stands for it.

    Args:
        by: names of parameters.
        until: how long a job stands for its key: "done", as long as it lives, its retries included (the default); or "started",
            until a worker takes it for the first time (the default where `on_conflict` is "replace" or "debounce").
        window: in place of `until`: so long from the enqueue on, also when the job is done before: "24h". It ends early if the
            job fails for good, is cancelled or given up.
        sliding: the window begins anew with each call that it suppresses.
        scope: among whom: "task" (the default), "shared" by all tasks that say so, or by all that give the same other name.
        on_conflict: what becomes of the second one: "skip", the caller is given the first; "replace", the first gets the new
            arguments, due time and priority if it has not begun; "debounce", the same, and it is due `wait` from now;
            "reject", the call raises `Duplicate`.
        wait: of "debounce": a job is due so long after the last call.
        longest: of "debounce": and so long after the first call at the latest.

    Guarantee: a unique index holds it. Two at the same moment: one waits for the commit of the other. Never an error in the
    caller's transaction under READ COMMITTED (docs/dedup.md).

    Raises:
        DeclarationError: it contradicts itself, or a value is unknown.
    """

    by: tuple[str, ...]
    until: Until | None
    window: float | None
    sliding: bool
    scope: str
    on_conflict: OnConflict
    wait: float
    longest: float

    def __init__(
        self,
        by: str | Iterable[str],
        *,
        until: Until | None = None,
        window: Duration | None = None,
        sliding: bool = False,
        scope: str = "task",
        on_conflict: OnConflict = "skip",
        wait: Duration | None = None,
        longest: Duration | None = None,
    ) -> None:
        names = (by,) if isinstance(by, str) else tuple(by)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise DeclarationError("Dedup: by needs the name of at least one parameter, such as Dedup(by=('employee_id',))")
        if on_conflict not in CONFLICTS:
            raise DeclarationError(f"Dedup: on_conflict={on_conflict!r} must be one of {', '.join(map(repr, CONFLICTS))}")
        if until not in (None, "done", "started"):
            raise DeclarationError(f"Dedup: until={until!r} must be 'done' or 'started'; for a time say window='24h'")
        if until is not None and window is not None:
            raise DeclarationError(f"Dedup: give until={until!r} or window={window!r}, not both")
        if sliding and window is None:
            raise DeclarationError("Dedup: sliding=True slides a window; add one, such as window='10m'")
        if scope not in ("task", "shared") and (not isinstance(scope, str) or not _NAME.fullmatch(scope)):
            raise DeclarationError(f"Dedup: scope={scope!r} must be 'task', 'shared', or a name of letters, digits, '_.:-'")
        pause, most = _debounce(on_conflict, wait, longest)
        natural: Until = "started" if on_conflict in ("replace", "debounce") else "done"
        set_ = object.__setattr__
        set_(self, "by", tuple(sorted(set(names))))
        set_(self, "until", None if window is not None else until or natural)
        set_(self, "window", None if window is None else _long(window, "window", LONGEST_WINDOW))
        set_(self, "sliding", bool(sliding))
        set_(self, "scope", scope)
        set_(self, "on_conflict", on_conflict)
        set_(self, "wait", pause)
        set_(self, "longest", most)

    def prefix(self, task: str) -> str:
        """What the keys of a task begin with: no task's name begins with a star."""
        return task if self.scope == "task" else "*" if self.scope == "shared" else f"*{self.scope}"

    def told(self) -> dict[str, Any]:
        """As plain JSON, for those who have no code."""
        return {
            "by": self.by, "until": self.until, "window": self.window, "sliding": self.sliding, "scope": self.scope,
            "on_conflict": self.on_conflict, "wait": self.wait or None, "longest": self.longest or None,
        }  # fmt: skip

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> "Dedup":
        """What `told` has written."""
        return cls(**told)

    def __reduce__(self) -> tuple[Any, ...]:
        return Dedup.read, (self.told(),)


def _long(value: Duration, what: str, most: float) -> float:
    found = seconds(value, f"Dedup: {what}")
    if not 0 < found <= most:
        raise DeclarationError(f"Dedup: {what}={value!r} must be above zero and at most ten years")
    return found


def _debounce(on_conflict: str, wait: Duration | None, longest: Duration | None) -> tuple[float, float]:
    if on_conflict != "debounce":
        if wait is not None or longest is not None:
            raise DeclarationError("Dedup: wait and longest belong to on_conflict='debounce'")
        return 0.0, 0.0
    if wait is None or longest is None:
        raise DeclarationError(
            "Dedup: on_conflict='debounce' needs wait='5s' and longest='1m': without the second a steady stream of calls would"
            " put the job off for ever"
        )
    pause, most = _long(wait, "wait", LONGEST_WINDOW), _long(longest, "longest", LONGEST_WINDOW)
    if most < pause:
        raise DeclarationError(f"Dedup: longest={longest!r} is shorter than wait={wait!r}")
    return pause, most


def by_key(terms: Dedup | None) -> Dedup:
    """The terms of a job whose caller gives the key itself: those of its task, or the usual ones."""
    return terms if terms is not None else _USUAL


_USUAL = Dedup(("key",))

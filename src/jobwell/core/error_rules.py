"""What a task or an app says about errors: `errors={"shop.sms.Busy": "throttled", ValueError: "temporary", 409: "temporary"}`."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from jobwell.core.error_reading import name_of, named
from jobwell.core.error_table import Kind
from jobwell.core.errors import DeclarationError
from jobwell.core.outcome import Reject, Retry, Snooze

ErrorKey = type[BaseException] | str | int
KINDS: Final[tuple[str, ...]] = get_args(Kind)
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


@dataclass(frozen=True, slots=True)
class Rules:
    """Checked rules of one place. A status goes before a class, and the nearest class before those farther up."""

    statuses: Mapping[int, Kind]
    classes: Mapping[type, Kind]
    names: Mapping[str, Kind]

    def find(self, ancestry: Sequence[type], status: int | None) -> tuple[str, Kind] | None:
        """The rule for an error of this ancestry, and its kind; None where there is none."""
        if status is not None and status in self.statuses:
            return f"HTTP {status}", self.statuses[status]
        for cls in ancestry:
            if cls in self.classes:
                return name_of(cls), self.classes[cls]
            for name, kind in self.names.items():
                if named(name, cls):
                    return name, kind
        return None


def rules(errors: Mapping[Any, Any] | None, who: str) -> tuple[Rules, ...]:
    """Check what was declared; nothing where nothing was.

    Args:
        errors: kinds by class, dotted name or HTTP status.
        who: whose they are, for the sentence.

    Raises:
        DeclarationError: a key or a kind would not do.
    """
    if errors is None:
        return ()
    if not isinstance(errors, Mapping):
        raise DeclarationError(f"{who}errors={errors!r} must be a mapping, such as {{ValueError: 'temporary', 409: 'temporary'}}")
    statuses: dict[int, Kind] = {}
    classes: dict[type, Kind] = {}
    names: dict[str, Kind] = {}
    for key, kind in errors.items():
        if kind not in KINDS:
            near = difflib.get_close_matches(str(kind), KINDS, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise DeclarationError(f"{who}errors[{key!r}]={kind!r} must be one of {', '.join(map(repr, KINDS))}{hint}")
        known: Kind = kind
        if isinstance(key, type) and issubclass(key, BaseException):
            _check_class(key, who)
            classes[key] = known
        elif isinstance(key, int) and not isinstance(key, bool) and 300 <= key <= 599:
            statuses[int(key)] = known
        elif isinstance(key, str) and _DOTTED.fullmatch(key):
            names[key] = known
        else:
            raise DeclarationError(
                f"{who}errors[{key!r}]: give an exception class, its dotted name ('shop.sms.Busy', 'builtins.ValueError'),"
                " or an HTTP status from 300 to 599"
            )
    return (Rules(statuses, classes, names),) if errors else ()


def _check_class(key: type[BaseException], who: str) -> None:
    if issubclass(key, Reject | Retry | Snooze):
        raise DeclarationError(f"{who}errors[{key.__name__}]: it says by itself what becomes of the job; no rule can change that")

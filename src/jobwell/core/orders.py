"""What decides where several things were raised together (`asyncio.TaskGroup`): an order to Jobwell, or an error. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from jobwell.core import error_reading as read
from jobwell.core.errors import JobwellError, ResourceUnavailable
from jobwell.core.outcome import Compensate, Reject, Retry, Snooze, after_seconds

# Of different orders the first of these counts: what no retry can mend, then what counts, then what costs nothing.
KINDS: Final[tuple[type[BaseException], ...]] = (Reject, Compensate, Retry, Snooze, ResourceUnavailable)
CANCELLED: Final = "asyncio.exceptions.CancelledError"


@dataclass(frozen=True, slots=True)
class Raised:
    """What counts of it.

    Attributes:
        order: Reject, Compensate, Retry, Snooze, ResourceUnavailable or CancelledError, where one decides; None: an error does.
        error: the error that is judged then.
        asked: what a `Retry` beside it asked to wait.
    """

    order: BaseException | None
    error: BaseException
    asked: Any = None


def deciding(error: BaseException, now: Callable[[], datetime]) -> Raised:
    """What decides of what was raised. Only groups are looked through.

    The rule: a `Reject` in it decides, or else a `Compensate`. Otherwise an error that is no order does, if there is one.
    Otherwise the orders do: of different kinds `Retry`, then `Snooze`, then `ResourceUnavailable`, and of several of a kind the
    one that asks for the longest wait. Whoever was only cancelled, because another one failed, has no say.
    """
    if not issubclass(type(error), BaseExceptionGroup):
        return Raised(error if _is(error, KINDS) or _is_cancelled(error) else None, error)
    leaves = read.leaves_of(error)
    told = [leaf for leaf in leaves if not _is_cancelled(leaf)]
    if not told:
        return Raised(leaves[0], error)
    errors = [leaf for leaf in told if not _is(leaf, KINDS)]
    by_kind = [[leaf for leaf in told if _is(leaf, (kind,))] for kind in KINDS]
    ends, retries = by_kind[0] + by_kind[1], by_kind[2]
    if ends:
        return Raised(ends[0], error)
    if errors:
        rest = error if len(errors) == len(leaves) else BaseExceptionGroup("errors", errors)
        return Raised(None, rest, getattr(_longest(retries, now), "after", None) if retries else None)
    return Raised(_longest(next(alike for alike in by_kind if alike), now), error)


def _is(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    return issubclass(type(error), kinds)  # whatever it says of its class itself


def _is_cancelled(error: BaseException) -> bool:
    return any(read.named(CANCELLED, cls) for cls in read.ancestors(error))


def _longest(orders: Sequence[BaseException], now: Callable[[], datetime]) -> BaseException:
    def wait(order: BaseException) -> float:
        if isinstance(order, ResourceUnavailable):
            return order.retry_in
        wish = getattr(order, "until" if isinstance(order, Snooze) else "after", None)
        if wish is None:
            return -1.0
        try:
            return after_seconds(wish, now(), "wish")
        except (JobwellError, TypeError):
            return -1.0

    return max(orders, key=wait)

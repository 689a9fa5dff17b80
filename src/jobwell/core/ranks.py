"""Priorities as people say them, and ranks as the tables hold them."""

from typing import Final

from jobwell.core.errors import DeclarationError

HIGHEST: Final = 100
LOWEST: Final = -100


def rank_of(priority: int, who: str = "") -> int:
    """Priority -100…100 (higher first) as a rank 0…200 (lower first).

    Raises:
        DeclarationError: not a whole number in the range.
    """
    if isinstance(priority, bool) or not isinstance(priority, int) or not LOWEST <= priority <= HIGHEST:
        raise DeclarationError(f"{who}priority={priority!r} must be a whole number from {LOWEST} to {HIGHEST}; higher goes first")
    return HIGHEST - priority

"""Sizes and limits of memory as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell import DeclarationError
from jobwell.core.size import MemoryLimit, memory_limit, size, text


@pytest.mark.parametrize(
    ("given", "limit", "shown"),
    [
        ("80%", MemoryLimit(0.8, part=True), "80%"),
        (" 99.5 % ", MemoryLimit(0.995, part=True), "99.5%"),
        ("100%", MemoryLimit(1.0, part=True), "100%"),
        ("6GB", MemoryLimit(6 * 1024**3, part=False), "6GB"),
        ("2000000", MemoryLimit(2_000_000, part=False), "1.9MB"),
        (512, MemoryLimit(512, part=False), "512B"),
    ],
)
def test_limits_of_memory(given: str | int, limit: MemoryLimit, shown: str) -> None:
    assert memory_limit(given, "memory_high") == limit
    assert str(limit) == shown


@pytest.mark.parametrize("given", ["0%", "101%", "-5%", "half", "%", "", 0, -1, True])
def test_what_is_no_limit(given: str | int) -> None:
    with pytest.raises(DeclarationError, match="memory_high="):
        memory_limit(given, "memory_high")


@given(st.integers(1, 2**50))
def test_bytes_are_shown_in_a_unit_that_is_near(number: int) -> None:
    assert size(text(number), "n") == pytest.approx(number, rel=0.06)

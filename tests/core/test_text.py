"""Texts of others made safe: the end-of-job write must not fail because of content (case H1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell.core.text import clean, storable, visible

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=300)  # lone surrogates and NUL included


@pytest.mark.parametrize("bad", [chr(code) for code in (0, 0xD800, 0xDFFF, 0x1B, 0x07, 0x7F, 0x0B, 0x9B, 0x85)])
def test_what_cannot_be_stored_or_would_steer_a_terminal_is_replaced(bad: str) -> None:
    assert clean(f"a{bad}b", 100) == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize("good", ["", "plain", "two\nlines\tand a tab\r\n", "día 🛠️", "\U0010ffff", "\u200d"])
def test_what_is_harmless_stays(good: str) -> None:
    assert clean(good, 100) == good


def test_bytes_that_were_no_utf8_survive_as_text() -> None:
    assert clean(b"caf\xe9".decode(errors="surrogateescape"), 100) == "caf\N{REPLACEMENT CHARACTER}"


def test_a_long_text_is_cut_in_the_middle_and_says_so() -> None:
    cut = clean("begin " + "x" * 10_000 + " end", 200)
    assert len(cut) <= 200
    assert cut.startswith("begin xxx")
    assert cut.endswith("xxx end")
    assert "characters cut" in cut


@given(ANY_TEXT, st.integers(0, 400))
def test_the_result_encodes_has_no_nul_and_fits(text: str, limit: int) -> None:
    cleaned = clean(text, limit)
    cleaned.encode("utf-8")
    assert "\x00" not in cleaned
    assert len(cleaned) <= limit
    assert storable(cleaned)


@given(ANY_TEXT)
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text, 1000), 1000) == clean(text, 1000)


@given(ANY_TEXT)
def test_storable_means_utf8_without_nul(text: str) -> None:
    try:
        encodes = b"\x00" not in text.encode("utf-8")
    except UnicodeEncodeError:
        encodes = False
    assert storable(text) is encodes


def test_what_a_terminal_would_obey_is_replaced() -> None:
    mark = "\N{REPLACEMENT CHARACTER}"
    assert visible("\x1b[2J\x9b2Jx\x07") == f"{mark}[2J{mark}2Jx{mark}"
    assert visible("a\rb\r\nc\td\n") == f"a{mark}b\nc\td\n"
    assert visible("user\u202etxt.exe\u2066") == f"user{mark}txt.exe{mark}"
    assert visible("Ünïcode 漢字 \U0001f600") == "Ünïcode 漢字 \U0001f600"
    assert visible("\ud800") == mark

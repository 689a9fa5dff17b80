"""Failures of one kind have one fingerprint, whatever stands in their messages."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell.core.fingerprint import LONGEST, fingerprint, normalised, short

SAME = [
    ("employee 7 is gone", "employee 8812 is gone", "employee <n> is gone"),
    ("no 3f2b1c9a-0000-4000-8000-000000000001 here", "no 99999999-0000-4000-8000-00000000000f here", "no <uuid> here"),
    ("ann@example.org is unknown", "b.o-b+x@mail.shop.kz is unknown", "<mail> is unknown"),
    ("at 2030-01-31T08:00:00Z: late", "at 2029-12-01 23:59:59.123+05:00: late", "at <time>: late"),
    ("KeyError: 'anna'", 'KeyError: "bob and co"', "KeyError: <text>"),
    ("cannot open /var/lib/x.csv", "cannot open ./data/b-2.csv", "cannot open <path>"),
    ("object at 0x7f00aa", "object at 0xdeadbeef01", "object at <hex>"),
    ("etag d41d8cd98f00b204", "etag 0cc175b9c0f1b6a8", "etag <hex>"),
    ("GET https://a.example/7?x=1 failed", "GET http://b.example failed", "GET <url> failed"),
    ("took 1.5 s, 12 times", "took -300.25 s,  7\ntimes", "took <n> s, <n> times"),
    ("key (id)=(10000001) exists", "key (id)=(5) exists", "key (id)=(<n>) exists"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "form"), SAME)
def test_what_differs_from_job_to_job_is_a_mark(one: str, other: str, form: str) -> None:
    assert normalised(one).replace("<hex>", "<n>") == normalised(other).replace("<hex>", "<n>") == form.replace("<hex>", "<n>")


@pytest.mark.parametrize("words", ["it didn't work, they can't say", "the mail server is away", "and/or", "a b c d e f face", ""])
def test_plain_words_stay(words: str) -> None:
    assert normalised(words) == words


@given(st.text(st.characters(codec="utf-8"), max_size=3000))
def test_any_text_is_bounded_has_no_digit_and_no_line_break(message: str) -> None:
    found = normalised(message)
    assert len(found) <= LONGEST
    assert not any(letter.isdecimal() for letter in found)
    assert found == " ".join(found.split())


@given(st.integers(), st.integers(), st.uuids(), st.uuids(), st.emails(), st.emails())
def test_two_of_the_same_kind_are_one(n: int, m: int, a: UUID, b: UUID, mine: str, yours: str) -> None:
    plain = all(set(mail) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+-_@") for mail in (mine, yours))
    texts = [f"job {n} of {a}", f"job {m} of {b}"]
    assert normalised(texts[0]) == normalised(texts[1])
    if plain:
        assert normalised(f"to {mine} sent") == normalised(f"to {yours} sent")


def test_a_code_decides_and_without_an_error_the_reason() -> None:
    given = {"reason": "rejected", "error_type": "Reject", "place": "t.py:f", "message": "no 7"}
    assert fingerprint("t", code="gone", **given) == "t|gone|t.py:f"
    assert fingerprint("t", code=None, **given) == "t|Reject|t.py:f|no <n>"
    assert fingerprint("t", code=None, reason="deadline", error_type="", place="", message="3 s too late") == "t|deadline"


def test_a_short_name_is_stable_and_tells_apart() -> None:
    assert short("a|b") == short("a|b") != short("a|c")
    assert len(short("x" * 5000)) == 10


def test_a_long_text_that_almost_fits_everything_is_quick() -> None:
    for piece in ("a", "a.", "1-", "'", "/a", "aa@", "00000000-0000-", "http:", "9999-99-99 "):
        normalised(piece * 5000)

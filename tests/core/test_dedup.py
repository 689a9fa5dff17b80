"""What makes jobs equal: terms that contradict themselves are refused, and a key depends on the values alone."""

import pickle
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell import App, DeclarationError, Dedup, Duplicate, EnqueueError
from jobwell.core import published
from jobwell.core.ids import new_id
from jobwell.core.job import Options, dedup_key, key_of


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"by": ()}, "by needs the name of at least one parameter"), ({"by": "n", "until": "ever"}, "until='ever' must be"),
        ({"by": "n", "until": "done", "window": "1h"}, "not both"), ({"by": "n", "sliding": True}, "slides a window"),
        ({"by": "n", "window": 0}, "above zero"), ({"by": "n", "window": "often"}, "window"), ({"by": "n", "scope": "a b"}, "scope="),
        ({"by": "n", "on_conflict": "drop"}, "on_conflict='drop'"), ({"by": "n", "wait": "1s"}, "belong to on_conflict='debounce'"),
        ({"by": "n", "on_conflict": "debounce", "wait": "1s"}, "for ever"),
        ({"by": "n", "on_conflict": "debounce", "wait": "1m", "longest": "1s"}, "shorter than wait"),
    ],
)  # fmt: skip
def test_terms_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        Dedup(**options)


def test_terms_name_parameters_of_the_task() -> None:
    app = App("postgresql://nowhere/x")
    with pytest.raises(DeclarationError, match="did you mean 'employee_id'"):

        @app.task(name="wrong", dedup=Dedup("employe_id"))
        def wrong(employee_id: int) -> None: ...

    @app.task(name="right", dedup=Dedup("employee_id"))
    def right(employee_id: int) -> None: ...

    with pytest.raises(EnqueueError, match="'branch' is not a parameter"):
        right.using(dedup=Dedup("branch")).job(1)
    for key in ("", "x" * 201, "a\x00b"):
        with pytest.raises(EnqueueError, match="dedup_key"):
            right.using(dedup_key=key).job(1)


def test_what_changes_a_job_goes_until_its_start_unless_told_otherwise() -> None:
    assert [Dedup("n", on_conflict="replace").until, Dedup("n").until, Dedup("n", window=5).until] == ["started", "done", None]
    assert Dedup("n", on_conflict="replace", until="done").until == "done"


values = st.one_of(
    st.integers(), st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00")), st.booleans(), st.none(),
    st.floats(allow_nan=False), st.dictionaries(st.text(st.characters(codec="ascii", exclude_characters="\x00$")), st.integers(0, 9)),
)  # fmt: skip


@given(values, values)
def test_a_key_depends_on_the_values_and_on_nothing_else(a: Any, b: Any) -> None:
    """Also by the quicker way that plain values take, whatever the order in which they are given and however they are written."""
    app = App("postgresql://nowhere/x")

    @app.task(name="t", dedup=Dedup(("b", "a")))
    def t(a: Any, b: Any = None, rest: int = 0) -> None: ...

    spec, terms = t.spec, t.spec.dedup
    assert terms is not None
    found = t.job(a, b).dedup_key
    assert found == t.job(b=b, a=a, rest=5).dedup_key == dedup_key(spec, terms, {"b": b, "a": a})
    canonical = orjson.dumps(orjson.loads(spec.signature.encode({"a": a, "b": b})), option=orjson.OPT_SORT_KEYS)
    assert found == key_of("t", canonical)
    assert len(found) <= 66


def test_scopes_keep_keys_apart_or_together() -> None:
    app = App("postgresql://nowhere/x")
    keys = {}
    for name, scope in (
        ("a", "task"),
        ("b", "task"),
        ("c", "shared"),
        ("d", "shared"),
        ("e", "mail"),
        ("f", "mail"),
        ("shared", "task"),
    ):

        @app.task(name=name, dedup=Dedup("n", scope=scope))
        def made(n: int) -> None: ...

        keys[name] = made.job(1).dedup_key
    assert keys["c"] == keys["d"] != keys["shared"]
    assert keys["e"] == keys["f"]
    assert len(set(keys.values())) == 5


def test_whoever_has_no_code_makes_the_same_key() -> None:
    app = App("postgresql://nowhere/x")

    @app.task(name="t", dedup=Dedup(("n", "who"), window="1h", sliding=True, on_conflict="debounce", wait=1, longest=9))
    def t(n: int, who: str = "x", more: float = 0.5) -> None: ...

    known = published.read("t", published.publish(t.spec))
    assert known.dedup == t.spec.dedup
    job = published.make(known, {"n": 7}, Options(), None, 10_000)
    assert (job.dedup_key, job.dedup, job.delay) == (t.job(7).dedup_key, t.spec.dedup, 1.0)


def test_errors_and_terms_travel_between_processes() -> None:
    terms = Dedup(("n", "m"), on_conflict="debounce", wait=1, longest=9, scope="mail")
    assert pickle.loads(pickle.dumps(terms)) == terms
    error = Duplicate("no", job_id=new_id(), task="t", tenant="", key="k", state="ready")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))

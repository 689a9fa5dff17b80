"""The pages: short where they must be short, complete where they must be complete, and their links lead somewhere."""

import dataclasses
import re
from functools import cache
from pathlib import Path

from jobwell.settings import Settings
from tests.architecture.helpers import ROOT, files, report

README_LINES = 110  # two screens
CODE = re.compile(r"^(```|~~~).*?^\1\s*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$|<a (?:id|name)=\"([^\"]+)\"", re.MULTILINE)


def _pages() -> list[Path]:
    return [path for path in files() if path.suffix == ".md" and not path.is_relative_to(ROOT / "tests")]


@cache
def _anchors(page: Path) -> frozenset[str]:
    found: list[str] = []
    for words, given in HEADING.findall(
        re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    ):
        name = given or re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.append(name if name not in found else f"{name}-{found.count(name)}")
    return frozenset(found)


def test_the_readme_fits_two_screens() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").count("\n")
    assert 0 < lines <= README_LINES, f"README.md has {lines} lines; it has some, and at most {README_LINES}"


def test_each_relative_link_leads_somewhere() -> None:
    problems = []
    for page in _pages():
        for target in (first or second for first, second in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))):
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            place, _, anchor = target.partition("#")
            file = (page.parent / place).resolve() if place else page
            if not file.exists() or not file.is_relative_to(ROOT):
                problems.append(f"{page.relative_to(ROOT)}: {target} is not there")
            elif anchor and file.suffix == ".md" and anchor not in _anchors(file):
                problems.append(f"{page.relative_to(ROOT)}: {target}: {file.name} has no such heading")
    report(problems, "Links within the repository lead to files and headings that exist.")


def test_each_setting_is_documented() -> None:
    page = ROOT / "docs" / "settings.md"
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    names = [entry.name for entry in dataclasses.fields(Settings) if "about" in entry.metadata]
    missing = [name for name in names if f"`{name}`" not in text]
    report(missing, f"docs/settings.md {'does not name' if text else 'does not exist; it is to name'} these settings, as `name`:")

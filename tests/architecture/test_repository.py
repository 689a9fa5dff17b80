"""What the repository holds: what people wrote, in words that mean something to a stranger on any machine."""

import re
from pathlib import Path

from tests.architecture.helpers import ROOT, files, git, report

LARGEST = 1_500_000
TEXT = {
    ".py",
    ".md",
    ".toml",
    ".sql",
    ".cfg",
    ".ini",
    ".yml",
    ".yaml",
    ".json",
    ".html",
    ".js",
    ".css",
    ".csv",
    ".txt",
    ".sh",
    "",
}
WORDS = {
    "who wrote it is for the version history": re.compile(
        r"(?<!service )(?<!user )\bagents?\b|\bco-authored-by\b"
        r"|\b(written|made|built|done|filed|left|authored|reviewed) (by|in) \w+( \w+)? sessions?\b|\bsessions? (notes?|briefs?)\b",
        re.IGNORECASE,
    ),
    "a path of one machine": re.compile(r"(?<![\w.*~-])/(work|root|home/\w+|Users/\w+|workspace|repo)/", re.IGNORECASE),
    "the host of a package registry": re.compile(
        r"\b(pypi|npmjs|crates|rubygems)\.(org|com|io)\b|pythonhosted|proxy\.golang|--(extra-)?index-url|find-links",
        re.IGNORECASE,
    ),
}


def test_nothing_machine_made_is_tracked() -> None:
    ignored = git("ls-files", "-ci", "--exclude-standard")
    places = sorted({name.split("/")[0] for name in ignored})
    assert not ignored, f"{len(ignored)} tracked files are named by .gitignore, in: {', '.join(places)} (git rm -r --cached …)"


def test_no_file_is_huge() -> None:
    sizes = ((path, path.stat().st_size) for path in files())
    report(
        [f"{path.relative_to(ROOT)}: {size:,} bytes" for path, size in sizes if size > LARGEST],
        f"At most {LARGEST:,} bytes a file.",
    )


def test_the_words_make_sense_everywhere() -> None:
    problems = []
    for path in files():
        if path.suffix not in TEXT or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for reason, words in WORDS.items():
                if found := words.search(line):
                    problems.append(f"{path.relative_to(ROOT)}:{number} {found.group()!r}: {reason}")
    report(problems, "Words that do not belong into the repository.")

"""SQL lives in .sql files of the store; nothing else speaks it."""

import re

from tests.architecture.helpers import ROOT, SRC, files, modules, report, statements, texts

HOMES = ("src/jobwell/store/sql/", "src/jobwell/store/functions/", "src/jobwell/store/migrations/")
MAKER_OF_SERVERS = SRC / "embedded.py"  # no tables are there yet
OWN = ("src/jobwell/demo/case.sql", "src/jobwell/lab/")  # tables of their own, beside the store's
STATEMENT = re.compile(
    r"""\s*(
        select\b .* \bfrom\b | select\s+ [\w.]+\( | select\s+\d
        | insert\s+into\b | update\s+[\w."{}]+\s+set\b | delete\s+from\b | merge\s+into\b | copy\s+[\w."{}]+.*\b(from|to)\b
        | with\s+(recursive\s+)?\w+\s*(\([^)]*\)\s*)?as\s+((not\s+)?materialized\s+)?\(
        | (create|drop|alter)\s+(unlogged\s+|temp\w*\s+)?(table|schema|index|function|view|role|database)\b | truncate\s
        | (un)?listen\s+["{\w*] | notify\s+["{\w] | set\s+(local|session)\s | lock\s+table\b | explain\s | (vacuum|analyze)\s+[("{\w]
    )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
ANYWHERE = re.compile(r"pg_(try_)?advisory_\w+\(|pg_notify\(|\bfor\s+(no\s+key\s+)?update\b|\bskip\s+locked\b", re.IGNORECASE)


def test_statements_are_written_in_the_store_only() -> None:
    problems = []
    for module in modules():
        if module.inside("store") or module.path == MAKER_OF_SERVERS:
            continue
        for node, text in texts(module.tree):
            if STATEMENT.match(text) or ANYWHERE.search(text):
                problems.append(f"{module.at(node)} {' '.join(text.split())[:70]}")
    report(problems, "SQL belongs into src/jobwell/store/sql, as a named statement; here it stands in Python outside the store.")


def test_sql_files_lie_in_the_store() -> None:
    found = [str(path.relative_to(ROOT)) for path in files() if path.suffix == ".sql" and path.is_relative_to(SRC)]
    assert found
    problems = [name for name in found if not name.startswith((*HOMES, *OWN))]
    report(problems, f".sql files of the package lie in {', '.join(HOMES)}")


def test_a_statement_that_does_not_explain_itself_is_explained() -> None:
    long = ((where, name, lines) for where, name, lines in statements() if len(lines) > 10)
    problems = [f"{where} {name}" for where, name, lines in long if not lines[1].startswith("-- ")]
    report(problems, "The line below `-- name: …` of a long statement is a comment that says what it is for.")

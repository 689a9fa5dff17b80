"""The page about errors, from the table.

python -m tests.docs.errors_page        writes docs/errors.md anew
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from jobwell.core.error_table import AWS, ERRNOS, GRPC, LIBRARIES, SQLITE, SQLSTATES, By, Kind, Row
from jobwell.core.retry import UNKNOWN_ATTEMPTS

FILE = Path(__file__).parents[2] / "docs" / "errors.md"
REWRITE = "python -m tests.docs.errors_page"
KINDS: tuple[Kind, ...] = ("temporary", "throttled", "logical", "unknown")
ORIGINS = {"external": "another system", "limits": "a limit", "code": "own code", "validation": "data"}
BY: dict[By, str] = {
    "http": "by its [HTTP status](#http-status)", "errno": "by its [number](#numbers-of-the-operating-system)",
    "sqlstate": "by its [SQLSTATE](#postgresql)", "sqlite": "by its [result code](#sqlite)", "grpc": "by its [code](#grpc-codes)",
    "smtp": "by its reply: 4xx temporary, 5xx logical", "recipients": "by the replies: one 5xx makes it logical",
    "aws": "by its [code](#aws-codes), then by its [HTTP status](#http-status)", "inside": "by the error that it wraps",
    "certificate": "logical where a certificate was not accepted",
}  # fmt: skip

INTRODUCTION = f"""# Which error is what

<!-- Written from the table by `{REWRITE}`; change src/jobwell/core/error_table.py instead. -->

What a task raises is one of four kinds, and the kind says what becomes of the job:

| kind | meaning | what becomes of the job |
|---|---|---|
| temporary | the same may go later | tried again, by the task's `retry` |
| throttled | the other side asks for less | tried again, by the task's `retry` |
| logical | no retry can mend it | to the quarantine at once, as `rejected` |
| unknown | nothing is known | tried again, in {UNKNOWN_ATTEMPTS} attempts at most |

`Reject`, `Retry` and `Snooze` say by themselves what is meant and are not judged.

It also **comes from** somewhere: our own code (`code`), another system (`external`), a limit that was reached (`limits`), or data that
does not fit (`validation`). That stands with each attempt and each failed job (`jobwell jobs show`, `jobwell quarantine list` and
`groups`, column `origin`). What nothing is known about is taken for our own code, and so is an order, unless it was raised `from` an
error that is known. Crashes, losses and jobs that no worker knows have none.

## Say it yourself

```python
from jobwell import App

app = App(errors={{"shop.sms.Busy": "throttled"}})


@app.task(errors={{ValueError: "temporary", 409: "temporary", "shop.payment.Declined": "logical"}})
async def charge(order_id: int) -> None: ...
```

* A key is an exception class, its dotted name (nothing is imported for it), or an HTTP status; the kind is one of the four.
* The task's rules go first, then the app's, then the table below. In each a status goes before a class, and the nearest class in the
  ancestry before those farther up. A subclass is what its class is.
* A dotted name may be where the class is defined, or where its package shows it: `httpx.ReadTimeout`.
* A wrong key or kind is refused at import, with a `DeclarationError`.

## How it is looked at

* **Groups** (`ExceptionGroup`, as `asyncio.TaskGroup` raises it): if all errors in it are alike, that is the kind. Otherwise the most
  cautious counts: logical, then unknown, then throttled, then temporary. A retry runs the whole task: where one part can never go, it
  would only repeat the others. Orders in a group: a `Reject` decides over all, then a `Compensate`; then errors decide over the other orders; and orders
  alone are followed, `Retry` before `Snooze` before `ResourceUnavailable`, of several the one with the longest wait. What was merely
  cancelled has no say.
* **Causes**: an error that nothing is known about is what it was raised `from`, eight steps deep. What was merely being handled at
  the time is no cause.
* **Vendors' own errors**: a class that stands nowhere below is judged by the HTTP status of its `response`, if it holds one. An
  attribute `status` alone may mean anything and is left alone.
* An error that cannot be read, whatever it does, is unknown.
"""


def _code(names: Iterable[object]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(first: str, rows: Iterable[tuple[str, str, str]]) -> list[str]:
    return [
        "",
        f"| {first} | kind | comes from |",
        "|---|---|---|",
        *(f"| {names} | {kind} | {origin} |" for names, kind, origin in rows),
    ]


def _kind(row: Row) -> str:
    if row.by is None:
        return row.kind
    if row.by == "certificate":
        return f"{row.kind}; {BY[row.by]}"
    return BY[row.by] + ("" if row.kind == "unknown" else f"; where that says nothing {row.kind}")


def _grouped(rows: "Iterable[tuple[object, Row]]", first: str) -> list[str]:
    together: dict[Row, list[object]] = {}
    for name, row in rows:
        together.setdefault(row, []).append(name)
    ordered = sorted(together.items(), key=lambda item: (item[0].by is not None, KINDS.index(item[0].kind), item[0].origin))
    return _table(first, ((_code(names), _kind(row), ORIGINS[row.origin]) for row, names in ordered))


def page() -> str:
    """The whole page."""
    lines = [INTRODUCTION, "## HTTP status"]
    lines += _table("status", [
        ("429, and 503 with `Retry-After`", "throttled", "a limit"), ("408, 425, and 5xx but for these two", "temporary", "another system"),
        ("501, 505", "logical", "another system"), ("400, 422", "logical", "data"), ("4xx else", "logical", "another system"),
    ])  # fmt: skip
    lines += ["", "## Libraries"]
    for library in LIBRARIES:
        lines += ["", f"### {library.title}", *_grouped(library.rows.items(), "error")]
    lines += ["", "## Codes", "", "### Numbers of the operating system", *_grouped(ERRNOS.items(), "errno")]
    lines += [
        "",
        "### PostgreSQL",
        "",
        "Two characters stand for a class of codes; a whole code goes before its class. Others are unknown.",
    ]
    lines += _grouped(SQLSTATES.items(), "SQLSTATE")
    lines += ["", "### SQLite", *_grouped(SQLITE.items(), "result code")]
    lines += [
        "",
        "### gRPC codes",
        "",
        "A wait is read from `grpc-retry-pushback-ms`. Other codes are unknown.",
        *_grouped(GRPC.items(), "code"),
    ]
    lines += ["", "### AWS codes", *_grouped(AWS.items(), "code")]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write it."""
    FILE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{FILE} is written\n")


if __name__ == "__main__":
    main()

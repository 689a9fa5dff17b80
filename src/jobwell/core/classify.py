"""What kind of error it is: temporary, logical, throttled or unknown. Rules of the task, then of the app, then the table."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from jobwell.core import error_reading as read
from jobwell.core.error_rules import Rules
from jobwell.core.error_table import AWS, ERRNOS, GRPC, REFUSED, SQLITE, SQLSTATES, TABLE, Kind, Origin, Row, of_reply, of_status

__all__ = ["TABLE", "Kind", "Origin", "Verdict", "classify"]

DEPTH: Final = 8  # of causes that are looked through
MOST: Final = 1000  # errors in one
CERTIFICATE: Final = "ssl.SSLCertVerificationError"
# Of several errors that came together the first of these counts. One that no retry mends makes every retry of the whole vain, and
# would repeat what the others have done; one that nobody knows has the smaller budget; and a wait that was asked for is kept.
CAUTION: Final[tuple[Kind, ...]] = ("logical", "unknown", "throttled", "temporary")
_ERRNOS: Final = {number: row for name, row in ERRNOS.items() if (number := getattr(errno, name, None)) is not None}
_LAST: Final[dict[str, list[str]]] = {}
for _name in TABLE:
    _LAST.setdefault(_name.rpartition(".")[2], []).append(_name)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an error is.

    Attributes:
        kind: temporary, logical, throttled or unknown.
        origin: own code, an external system, a limit that was reached, or data that does not fit.
        status: of HTTP or SMTP, where the error carries one.
        asked: what the other side asked to wait, as it said it: the text of a `Retry-After` header, or seconds.
        rule: the name in the table that decided; empty where none did.
    """

    kind: Kind
    origin: Origin = "code"
    status: int | None = None
    asked: str | float | None = None
    rule: str = ""


UNKNOWN: Final = Verdict("unknown")


def classify(error: BaseException, rules: Sequence[Rules] = ()) -> Verdict:
    """What an error is.

    Args:
        error: what was raised. Groups are looked through, and so is what an error is raised `from` where it says nothing itself.
        rules: of the task, then of the app (`TaskSpec.errors`); they go before the table.

    Returns:
        The verdict; "unknown" where nothing is known.

    Guarantee: it never raises, whatever the error does when it is looked at.
    """
    return read.quietly(lambda: _Look(rules).judged(error, 0)) or UNKNOWN


class _Look:
    """One look at an error and at what is in it: each is judged once, and so many at most, however they are tied together."""

    def __init__(self, rules: Sequence[Rules]) -> None:
        self._rules = rules
        self._seen: dict[int, tuple[BaseException, Verdict]] = {}  # with the error, so that its id is not given to another one

    def judged(self, error: BaseException, depth: int) -> Verdict:
        """By the rules, by the table, or by its cause."""
        seen = self._seen.get(id(error))
        if seen is not None:
            return seen[1]
        if depth > DEPTH or len(self._seen) >= MOST:
            return UNKNOWN
        self._seen[id(error)] = (error, UNKNOWN)
        table = self._of_table(error, depth)
        found = self._ruled(error, table) or table
        if table is found and found.kind == "unknown":  # where a rule says "unknown" the cause is not asked
            cause = read.get(error, "__cause__")
            if issubclass(type(cause), BaseException):
                deeper = self.judged(cause, depth + 1)
                found = deeper if deeper.kind != "unknown" else found
        self._seen[id(error)] = (error, found)
        return found

    def _ruled(self, error: BaseException, table: Verdict) -> Verdict | None:
        ancestry = read.ancestors(error) if self._rules else []
        for layer in self._rules:
            ruled = layer.find(ancestry, table.status)
            if ruled is not None:
                return replace(table, kind=ruled[1], rule=ruled[0])
        return None

    def _of_table(self, error: BaseException, depth: int) -> Verdict:
        if issubclass(type(error), BaseExceptionGroup):
            return _worst([self.judged(leaf, depth + 1) for leaf in read.leaves_of(error)])
        known = UNKNOWN
        for ancestor in read.ancestors(error):
            for name in _LAST.get(read.words(ancestor.__name__) or "", ()):
                if read.named(name, ancestor):
                    row = TABLE[name]
                    found = self._by_inner(error, name, row, depth) if row.by == "inside" else _by_row(error, name, row)
                    if found.kind != "unknown" or row.by is None:
                        return found
                    known = known if known.rule else found
        return _by_response(error) or known

    def _by_inner(self, error: BaseException, name: str, row: Row, depth: int) -> Verdict:
        inner = read.inner_of(error)
        found = UNKNOWN if inner is None else self.judged(inner, depth + 1)
        return Verdict(row.kind, row.origin, rule=name) if found.kind == "unknown" else found


def _worst(verdicts: list[Verdict]) -> Verdict:
    for kind in CAUTION:
        alike = [verdict for verdict in verdicts if verdict.kind == kind]
        if alike:
            return next((verdict for verdict in alike if verdict.asked is not None), alike[0])
    return UNKNOWN


def _by_row(error: BaseException, name: str, row: Row) -> Verdict:
    """What the thing that the row looks at says, or the row itself."""
    status: int | None = None
    asked: str | float | None = None
    found: Row | None = None
    match row.by:
        case "http":
            status, asked = read.status_of(error), read.retry_after(error)
            found = of_status(status, asked=asked is not None)
        case "aws":
            code, status, asked = read.aws_of(error)
            found = AWS.get(code or "") or of_status(status, asked=asked is not None)
        case "grpc":
            code, asked = read.grpc_of(error)
            found = GRPC.get(code or "")
        case "smtp":
            status = read.reply_of(error)
            found = of_reply(status)
        case "recipients":
            status = max(read.replies_of(error), default=None)  # one refused for good: the same mail will not go to all
            found = of_reply(status)
        case "certificate":
            found = REFUSED if _is_not_trusted(error) else None
        case _:
            found = _by_code(error, row)
    found = found or row
    return Verdict(found.kind, found.origin, status, asked, name)


def _is_not_trusted(error: BaseException) -> bool:
    return any(read.named(CERTIFICATE, cls) for inner in read.chain_of(error) for cls in read.ancestors(inner))


def _by_code(error: BaseException, row: Row) -> Row | None:
    if row.by == "errno":
        return _ERRNOS.get(read.whole(read.get(error, "errno")) or 0)
    if row.by == "sqlite":
        return SQLITE.get((read.whole(read.get(error, "sqlite_errorcode")) or 0) & 0xFF)
    if row.by == "sqlstate":
        state = read.words(read.get(error, "sqlstate")) or ""
        # What a trigger raises, say, is an error of the driver's class for wrong statements; its code knows better.
        return SQLSTATES.get(state) or SQLSTATES.get(state[:2]) or (Row("unknown") if state else None)
    return None


def _by_response(error: BaseException) -> Verdict | None:
    """Of a class that nobody has named, such as a vendor's, which holds the response that it was made from."""
    status = read.status_of_response(error)
    asked = read.retry_after(error) if status is not None else None
    row = of_status(status, asked=asked is not None)
    return None if row is None else Verdict(row.kind, row.origin, status, asked, f"HTTP {status}")

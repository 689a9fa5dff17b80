"""What a report on failed jobs says: the sentence, the groups, the command that retries just one group. Pure."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from jobwell.core.text import flat, visible

BY: Final = ("reason", "task", "error", "tenant", "queue", "fingerprint", "code", "initiator")
COLUMNS: Final = (
    "id", "task", "tenant", "queue", "reason", "code", "error_type", "message", "failed_at", "attempt", "fingerprint", "carries",
)  # fmt: skip
GROUP_COLUMNS: Final = ("group", "jobs", "share", "first", "last", "tenants", "example", "retry")
KINDS_TOLD: Final = 3
GROUPS_TOLD: Final = 200
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")

# What a code begins with, where the rest of it is a thing that can be counted: 120 invalid addresses.
_COUNTABLE: Final = frozenset((
    "bad", "blocked", "closed", "duplicate", "empty", "expired", "invalid", "malformed", "missing", "no", "unknown",
    "unsupported", "wrong",
))  # fmt: skip
_REASONS: Final = {
    "rejected": "rejected",
    "exhausted": "out of attempts",
    "deadline": "out of time",
    "crashed": "that killed their processes",
    "lost": "lost with their hosts",
    "held": "whose outcome is unknown",
    "unsupported": "that no worker knows",
    "invalid": "whose arguments do not fit",
}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which failed jobs a report is on; None does not narrow it, an empty text is those that have none.

    Attributes:
        group_by: one of `BY`.
        error: the type of the error, as the store has it.
        initiator: who caused them: of what a job carries.
        owner: who answers for them: of what people say of their group, or else of what their task declares.
    """

    group_by: str = "reason"
    reason: str | None = None
    task: str | None = None
    queue: str | None = None
    tenant: str | None = None
    fingerprint: str | None = None
    code: str | None = None
    error: str | None = None
    initiator: str | None = None
    owner: str | None = None

    def filters(self) -> dict[str, str | None]:
        """By name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "group_by"}

    def given(self) -> dict[str, str]:
        """Those that narrow it."""
        return {name: value for name, value in self.filters().items() if value is not None}


@dataclass(frozen=True)
class Kind:
    """A way to fail, and how many failed so."""

    reason: str
    code: str | None
    error: str | None
    jobs: int

    def text(self) -> str:
        """For the sentence: "120 invalid addresses (code invalid_address)", "5 out of attempts (builtins.ValueError)"."""
        if self.code:
            *quality, thing = _words(self.code)
            if quality and quality[0] in _COUNTABLE:
                return f"{self.jobs:,} {' '.join(quality)} {thing if self.jobs == 1 else plural(thing)} (code {self.code})"
            return f"{self.jobs:,} with the code {self.code}"
        said = f"{self.jobs:,} {_REASONS.get(self.reason, self.reason)}"
        return f"{said} ({self.error})" if self.error else said


@dataclass(frozen=True)
class Group:
    """Failed jobs with something in common.

    Attributes:
        name: what they have in common; empty where they have none of it.
        first, last: when the first and the last of them failed.
        tenants: how many they belong to; `tenant` is the first of these.
        example: the message of the latest.
    """

    name: str
    jobs: int
    first: datetime
    last: datetime
    tenants: int
    tenant: str | None
    example: str | None


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A report without its list of jobs.

    Attributes:
        since: the failures after this moment, `until` this one.
        tenant_word: what the tasks call a tenant.
        schema: that holds the tables.
        more_kinds, more_groups: how many there are beside those told.
    """

    wanted: Wanted
    since: datetime
    until: datetime
    made_at: datetime
    total: int
    tenants: int = 0
    tenant_word: str = "tenant"
    kinds: list[Kind] = field(default_factory=list)
    more_kinds: int = 0
    groups: list[Group] = field(default_factory=list)
    more_groups: int = 0
    schema: str = "jobwell"

    def sentence(self, zone: tzinfo | None = None, end: str = "the list follows") -> str:
        """Everything in one sentence.

        Args:
            zone: of the time in it (default: the host's).
            end: its last words, where there is a list.
        """
        since = self.since.astimezone(zone)
        at = (
            f"{since.day} {since:%b %H:%M}"
            if since.year == self.until.astimezone(zone).year
            else f"{since.day} {since:%b %Y %H:%M}"
        )
        if not self.total:
            return f"None failed since {at}."
        told = [kind.text() for kind in self.kinds]
        if self.more_kinds:
            rest = self.total - sum(kind.jobs for kind in self.kinds)
            told.append(f"{rest:,} of {self.more_kinds:,} other kind{'s' if self.more_kinds > 1 else ''}")
        where = ""
        if self.tenants:
            word = _words(self.tenant_word.removesuffix("_id"))
            where = f", in {self.tenants:,} {' '.join([*word[:-1], word[-1] if self.tenants == 1 else plural(word[-1])])}"
        return f"{self.total:,} failed since {at}: {', '.join(told)}{where}{f'; {end}' if end else ''}."

    def share(self, group: Group) -> float:
        """Of all jobs in the report, between 0 and 1."""
        return group.jobs / self.total if self.total else 0.0

    def retry(self, group: Group) -> str:
        """The command that retries just the jobs of a group, whatever fails meanwhile."""
        given = self.wanted.given() | {self.wanted.group_by: group.name}
        if any(flat(value) != value for value in given.values()):
            return "(no command: a name in it holds characters that cannot be typed; jobwell quarantine groups has another)"
        options = " ".join(f"--{name}={shlex.quote(value)}" for name, value in given.items())
        period = f"--since={_iso(self.since)} --until={_iso(self.until)}"
        where = "" if self.schema == "jobwell" else f" --schema={self.schema}"
        return f"jobwell quarantine report {options} {period}{where} -f ids | xargs -r jobwell quarantine retry{where}"

    def as_json(self, group_rows: list[dict[str, Any]], zone: tzinfo | None) -> dict[str, Any]:
        """As data, without the list."""
        return {
            "sentence": self.sentence(zone, end=""), "since": self.since.astimezone(UTC), "until": self.until.astimezone(UTC),
            "total": self.total, "tenants": self.tenants, "tenant_word": self.tenant_word, "group_by": self.wanted.group_by,
            "filters": self.wanted.given(),
            "groups": group_rows, "more_groups": self.more_groups,
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """The groups as rows of `GROUP_COLUMNS`."""
        return [self._row(group) for group in self.groups]

    def _row(self, group: Group) -> dict[str, Any]:
        return {
            "group": group.name, "jobs": group.jobs, "share": round(self.share(group), 4),
            "first": group.first.astimezone(UTC), "last": group.last.astimezone(UTC), "tenants": group.tenants,
            "example": group.example, "retry": self.retry(group),
        }  # fmt: skip


def named(group: Mapping[str, Any], by: str) -> str:
    """The name of a group for people."""
    return flat(group["group"]) or f"(no {by})"


def carried(job: Mapping[str, Any]) -> str:
    """What a job carries, for people: "initiator=olga request_id=17"."""
    return " ".join(f"{name}={value}" for name, value in job["carries"].items())


def plural(word: str) -> str:
    """Of a plain English noun."""
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _words(code: str) -> list[str]:
    return visible(code).replace("_", " ").replace("-", " ").replace(".", " ").lower().split() or [code]

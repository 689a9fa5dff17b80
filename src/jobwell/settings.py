"""Settings: frozen values, checked once, that can say where they came from.

arguments > JOBWELL_* variables > jobwell.toml or [tool.jobwell] in pyproject.toml > defaults
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from jobwell.core import duration, pools, queues, smtp
from jobwell.core.errors import DeclarationError, SettingsError
from jobwell.core.pools import Pool
from jobwell.core.size import memory_limit

NO_URL = (
    "no database is set: give JOBWELL_DATABASE_URL=postgresql://user@host/database (any PostgreSQL 15 or newer),"
    " or JOBWELL_DATABASE_URL=embedded to try things out with a server of your own in .jobwell/"
)
RESERVED = frozenset((
    "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "both", "case", "cast", "check",
    "collate", "column", "constraint", "create", "current_catalog", "current_date", "current_role", "current_time",
    "current_timestamp", "current_user", "default", "deferrable", "desc", "distinct", "do", "else", "end", "except",
    "false", "fetch", "for", "foreign", "from", "grant", "group", "having", "in", "initially", "intersect", "into",
    "lateral", "leading", "limit", "localtime", "localtimestamp", "not", "null", "offset", "on", "only", "or", "order",
    "placing", "primary", "references", "returning", "select", "session_user", "some", "symmetric", "system_user", "table",
    "then", "to", "trailing", "true", "union", "unique", "user", "using", "variadic", "when", "where", "window", "with",
))  # fmt: skip
POOLERS = ("auto", "none", "transaction")
LOGS = ("auto", "text", "json", "none")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")


def _duration(value: Any, name: str) -> float:
    if isinstance(value, str) and value.strip().replace(".", "", 1).isdigit():
        value = float(value)  # a variable cannot say that it is a number
    return duration.seconds(value, name)


def _whole(value: Any, name: str) -> int:
    try:
        return int(str(value).replace("_", ""))
    except ValueError:
        raise SettingsError(f"{name}={value!r} is not a whole number") from None


def _flag(value: Any, name: str) -> bool:
    known = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    found = known.get(str(value).strip().lower())
    if found is None:
        raise SettingsError(f"{name}={value!r} must be true or false")
    return found


def _words(value: Any, name: str) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [word.strip() for word in value.split(",") if word.strip()]
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise SettingsError(f"{name}={value!r} must be a list of names")
    return tuple(value)


def _limits(value: Any, name: str) -> tuple[str, ...]:
    found = _words(value, name)
    for word in found:
        queues.read(word)
    return found


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise SettingsError(f"{name}={value!r} must be a text")
    return value


def _pools(value: Any, name: str) -> tuple[Pool, ...]:
    del name  # a pool says its own
    return pools.read(value)


def _memory(value: Any, name: str) -> str:
    if value != "":
        memory_limit(value, name)
    return str(value)


def _smtp(value: Any, name: str) -> str:
    if value != "":
        smtp.read(_text(value, name), name)
    return str(value)


def _pooler(value: Any, name: str) -> str:
    if value not in POOLERS:
        raise SettingsError(f"{name}={value!r} must be one of {', '.join(POOLERS)}")
    return str(value)


def _setting(default: Any, about: str, read: Any = _text, *, secret: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"about": about, "read": read})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings. Durations are seconds; sizes are bytes."""

    database_url: str = _setting("", "where the jobs are: postgresql://… or 'embedded'", secret=True)
    direct_url: str = _setting("", "a URL past the pooler, for LISTEN and migrations; empty: database_url", secret=True)
    pooler: str = _setting("auto", "whether database_url leads through one: auto, none, or transaction (its mode)", _pooler)
    schema: str = _setting("jobwell", "the schema that holds the tables")
    app: str = _setting("", "module:attribute of the App, for the command line")
    queues: tuple[str, ...] = _setting((), "the queues a worker serves; empty: all that the app declares", _words)
    queue_lengths: tuple[str, ...] = _setting((), "limits of queues, before those in the code: bulk=50000/200000", _limits)
    processes: int = _setting(1, "worker processes", _whole)
    slots: int = _setting(100, "jobs at once in each process", _whole)
    pools: tuple[Pool, ...] = _setting((), "slots by queues, as name=queues:slots; empty: one pool of all", _pools)
    memory_high: str = _setting("", "above it heavy tasks wait: 80% of the memory, or 6GB of a worker; empty: never", _memory)
    children: int = _setting(2, "child processes of each worker, for tasks with executor='process' and for suspects", _whole)
    lease: float = _setting(10.0, "a worker that is silent for so long is dead and its jobs are rescued", _duration)
    unknown_after: float = _setting(86400.0, "how long jobs wait for a worker that knows their task", _duration)
    hang: float = _setting(600.0, "a worker process without a sign of life for so long is killed by its supervisor", _duration)
    health: str = _setting("", "where the supervisor answers /healthz and /readyz: a port, or host:port; empty: nowhere")
    grace: float = _setting(25.0, "how long a stopping worker waits for its jobs", _duration)
    strict_priority: bool = _setting(default=False, about="lower priorities wait while a higher one has jobs", read=_flag)
    poll: float = _setting(0.25, "the longest pause between two looks for work", _duration)
    transaction_pool: int = _setting(4, "connections of each process for ctx.transaction(), at the most", _whole)
    payload_limit: int = _setting(256 * 1024, "the largest arguments of one job", _whole)
    batch_limit: int = _setting(1_000_000, "the most jobs in one call of enqueue_many", _whole)
    result_limit: int = _setting(256 * 1024, "the largest result of one job", _whole)
    retention: float = _setting(7 * 86400.0, "how long finished jobs and their results are kept", _duration)
    runs_keep: float = _setting(90 * 86400.0, "how long runs are kept after their end", _duration)
    quarantine_keep: float = _setting(0.0, "failed jobs older than this are given up by themselves; 0: never", _duration)
    smtp_url: str = _setting(
        "", "where workers hand over reports as mail: smtp://… or smtps://…; empty: no mail", _smtp, secret=True
    )
    connect_timeout: float = _setting(10.0, "how long to wait for a connection", _duration)
    statement_timeout: float = _setting(30.0, "how long one statement may take", _duration)
    log: str = _setting("auto", "the form of the worker's log: auto, text, json, or none to leave logging alone")
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not _SCHEMA.fullmatch(self.schema) or self.schema in RESERVED or self.schema.startswith("pg_"):
            rule = "use lower-case letters, digits and '_', at most 40, no digit first, no word of SQL"
            raise SettingsError(f"schema={self.schema!r}: {rule}")
        for name, least, most in (
            ("processes", 1, 64), ("slots", 1, 10_000), ("children", 1, 256), ("lease", 2, 3600), ("grace", 0, 86400),
            ("poll", 0.01, 60), ("payload_limit", 1024, 64 * 1024 * 1024), ("result_limit", 1024, 64 * 1024 * 1024),
            ("hang", 10, 86400), ("retention", 3600, 3660 * 86400), ("unknown_after", 60, 3660 * 86400),
            ("runs_keep", 3600, 3660 * 86400),
            ("quarantine_keep", 3600 if self.quarantine_keep else 0, 3660 * 86400),
            ("batch_limit", 1, 1_000_000_000), ("connect_timeout", 1, 600), ("statement_timeout", 1, 3600),
            ("transaction_pool", 1, 1000),
        ):  # fmt: skip
            value = getattr(self, name)
            if not least <= value <= most:
                raise SettingsError(f"{name}={value:g} is out of range; it must be from {least:g} to {most:g}")
        if self.pools and self.queues:
            raise SettingsError("queues and pools are both set; the pools name their queues, so leave `queues` out")
        if self.log not in LOGS:
            raise SettingsError(f"log={self.log!r} is not known; there are {', '.join(LOGS)}")
        for name in ("database_url", "direct_url"):
            check_url(getattr(self, name), name)

    @property
    def url(self) -> str:
        """The database URL.

        Raises:
            SettingsError: none is set; the sentence names both choices.
        """
        if not self.database_url:
            raise SettingsError(NO_URL)
        return self.database_url

    @property
    def all_slots(self) -> int:
        """Slots of a process: as they are set, or those of its pools together at the most."""
        return pools.peak(self.pools) if self.pools and "slots" not in self.origins else self.slots

    @property
    def beat(self) -> float:
        """Seconds between two renewals of the lease: three may fail before it ends."""
        return self.lease / 4

    def described(self) -> list[tuple[str, str, str, str]]:
        """For people: (name, value with the password masked, where it came from, what it is)."""
        rows = []
        for entry in fields(self):
            if "about" not in entry.metadata:
                continue
            value = getattr(self, entry.name)
            if entry.name.endswith("_url"):
                shown = smtp.masked(value) if entry.name == "smtp_url" else masked(value)
            elif entry.metadata["read"] is _duration:
                shown = duration.text(value)
            else:
                parts = value if isinstance(value, tuple) else (value,)
                shown = (" " if entry.name == "pools" else ", ").join(map(str, parts))
            rows.append((entry.name, shown, self.origins.get(entry.name, "default"), entry.metadata["about"]))
        return rows


def load(
    arguments: Mapping[str, Any] | None = None, *, environ: Mapping[str, str] | None = None, folder: Path | None = None
) -> Settings:
    """Put the settings together.

    Args:
        arguments: what the code or the command line says; None values do not count.
        environ: the environment (default: the process's).
        folder: where to look for jobwell.toml or pyproject.toml, upwards (default: the current one).

    Raises:
        SettingsError: a value is wrong or unknown; the message says where it came from.
    """
    environ = os.environ if environ is None else environ
    file_values, file_name = _from_file(folder or Path.cwd())
    from_environment, variables = _from_environment(environ)
    sources = [
        ("argument", {name: value for name, value in (arguments or {}).items() if value is not None}),
        ("environment", from_environment),
        (file_name, file_values),
    ]
    known = {entry.name: entry for entry in fields(Settings) if "about" in entry.metadata}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, given in sources:
        for name, value in given.items():
            where = variables[name] if origin == "environment" else origin
            if name not in known:
                raise SettingsError(f"{origin}: there is no setting {name!r}; `jobwell doctor` lists them")
            if name in values:
                continue
            try:
                values[name] = known[name].metadata["read"](value, name)
            except (SettingsError, DeclarationError) as error:
                raise SettingsError(f"{where}: {error.message}") from None
            origins[name] = where
    try:
        return Settings(**values, origins=origins)
    except SettingsError as error:
        wrong = next((name for name in values if error.message.startswith(f"{name}=")), "")
        raise SettingsError(f"{error.message} (from: {origins[wrong]})" if wrong else error.message) from None


def check_url(url: str, name: str) -> None:
    """Refuse what is no PostgreSQL URL.

    Raises:
        SettingsError: with the form that is right.
    """
    if url in ("", "embedded"):
        return
    scheme = url.split("://", 1)[0]
    if "://" not in url or scheme not in ("postgresql", "postgres"):
        raise SettingsError(
            f"{name}={masked(url)!r} is not a PostgreSQL URL; it looks like postgresql://user:password@host:5432/database"
            + ("; SQLAlchemy's '+driver' is not part of it" if scheme.startswith("postgresql+") else "")
        )
    authority, *path = url.split("://", 1)[1].split("?", 1)[0].split("/")
    if authority.count("@") > 1 or any(
        "@" in part for part in path
    ):  # the driver would look for a host of that name, and show it
        raise SettingsError(
            f"{name}={masked(url)!r} holds a bare '@' or '/' in its user or password: write '%40' and '%2F' there"
        )


def masked(url: str) -> str:
    """The URL without its passwords, also where it is not well-formed: it is shown in errors about just that."""
    if not re.search(r"://[^:/?#@]*@[^@]*$", url):  # a user alone is shown
        url = re.sub(r"://(?:([^:/?#@]*:)|[^@?]*?).*@", lambda found: f"://{found[1] or ''}***@", url, count=1, flags=re.DOTALL)
    return re.sub(r"(password=)[^&\s]*", r"\1***", url)


def _from_environment(environ: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The values, and the variable that each one came from."""
    found, variables = {}, {}
    for entry in fields(Settings):
        if "about" not in entry.metadata:
            continue
        variable = f"JOBWELL_{entry.name.upper()}"
        value, file = environ.get(variable), environ.get(f"{variable}_FILE")
        if value and file:
            raise SettingsError(f"{variable} and {variable}_FILE are both set; keep one of them")
        if file:
            variable += "_FILE"
            try:
                value = Path(file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                said = getattr(error, "strerror", None) or "it is not UTF-8"
                raise SettingsError(f"{variable}={file!r}: the file cannot be read ({said})") from None
        if value:
            found[entry.name], variables[entry.name] = value, variable
    return found, variables


def _from_file(folder: Path) -> tuple[dict[str, Any], str]:
    for place in (folder, *folder.parents):
        for name in ("jobwell.toml", "pyproject.toml"):
            path = place / name
            if not path.is_file():
                continue
            try:
                data = tomllib.loads(path.read_text(encoding="utf-8"))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
                raise SettingsError(f"{path}: cannot be read: {error}") from None
            section: Any = data
            for part in () if name == "jobwell.toml" else ("tool", "jobwell"):
                section = section.get(part, {})
                if not isinstance(section, dict):
                    raise SettingsError(f"{path}: {part} must be a table")
            return section, str(path)  # the nearest project ends the search
    return {}, "file"

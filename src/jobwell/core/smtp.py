"""Where mail is handed over, as a URL: `smtp://user:password@host:587?starttls=1`, `smtps://host`. Pure."""

import re
from dataclasses import dataclass, field

from jobwell.core.errors import SettingsError

FORM = "smtp://user:password@host:587?starttls=1 or smtps://user:password@host"
OPTIONS = ("starttls", "verify", "ca", "from")
_SENDER = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,189}")


@dataclass(frozen=True, slots=True)
class Server:
    """A mail server.

    Attributes:
        tls: from the first byte on.
        starttls: True: after STARTTLS, or not at all; False: never; None: where the server offers it.
        verify: its certificate is checked.
        ca: a file of certificates to check it by; empty: those of the system.
        sender: the address that mail comes from.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: bool
    starttls: bool | None
    verify: bool
    ca: str
    sender: str

    @property
    def place(self) -> str:
        """As it may be shown."""
        return f"{self.host}:{self.port}"


def read(url: str, name: str = "smtp_url") -> Server:
    """Read it.

    Raises:
        SettingsError: it cannot be read; without showing what is secret in it.
    """
    from urllib.parse import unquote, urlsplit  # not before there is a URL to read

    try:
        found = urlsplit(url)
        port = found.port
    except ValueError:
        raise SettingsError(f"{name}={masked(url)!r} cannot be read; it looks like {FORM}") from None
    if found.scheme not in ("smtp", "smtps") or not found.hostname or found.path.strip("/") or found.fragment:
        raise SettingsError(f"{name}={masked(url)!r} is no URL of a mail server; it looks like {FORM}")
    options = dict(part.partition("=")[::2] for part in found.query.split("&") if part)
    if set(options) - set(OPTIONS):  # not shown: it may be the rest of a password
        raise SettingsError(
            f"{name} has an option that is not known; there are {', '.join(OPTIONS)}. Write '?' as '%3F' in a password"
        )
    tls, user, password = found.scheme == "smtps", unquote(found.username or ""), unquote(found.password or "")
    starttls = _flag(options, "starttls", name)
    if tls and starttls:
        raise SettingsError(f"{name}: smtps:// has TLS from the first byte on; leave starttls out")
    if starttls is None and user and not tls:
        starttls = True  # a password goes over no open line unless somebody says so
    sender = unquote(options.get("from", "")) or (user if "@" in user else f"jobwell@{found.hostname}")
    if not _SENDER.fullmatch(sender):
        raise SettingsError(f"{name}: {sender!r} cannot be the sender of a mail; say from=jobs@example.org in it")
    return Server(
        host=found.hostname, port=port or (465 if tls else 587 if user else 25), user=user, password=password, tls=tls,
        starttls=False if tls else starttls, verify=_flag(options, "verify", name) is not False,
        ca=unquote(options.get("ca", "")), sender=sender,
    )  # fmt: skip


def masked(url: str) -> str:
    """The URL without its password, also where it is not well-formed."""
    head, mark, rest = url.partition("://")
    if not mark:
        return "***" if "@" in url else url
    place, question, options = rest.partition("?")
    user, at, host = place.rpartition("@")
    if any(part.partition("=")[0] not in OPTIONS for part in options.split("&") if part):  # of a password with a '?', perhaps
        return f"{head}://***"
    return f"{head}://{user.partition(':')[0] + ':***@' if ':' in user else user + at}{host}{question}{options}"


def _flag(options: dict[str, str], option: str, name: str) -> bool | None:
    if option not in options:
        return None
    if options[option] not in ("0", "1"):
        raise SettingsError(f"{name}: {option} is 0 or 1")
    return options[option] == "1"

"""Reports as mail."""

import asyncio
from collections.abc import Sequence
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from importlib.util import find_spec
from typing import Final

from jobwell.core.errors import JobwellError, SettingsError
from jobwell.core.letter import Report
from jobwell.core.smtp import Server
from jobwell.core.text import clean, flat

STEP: Final = 20.0  # seconds for one answer of the server
WHOLE: Final = 60.0  # seconds for a mail


class NotSent(JobwellError):
    """A report did not get away."""


def check() -> None:
    """Say at the start what is missing, and not when something has failed at night.

    Raises:
        SettingsError: the library is not installed.
    """
    if find_spec("aiosmtplib") is None:
        raise SettingsError("smtp_url is set, and sending mail needs aiosmtplib; install jobwell[mail], or leave smtp_url empty")


def message(report: Report, recipients: Sequence[str], sender: str) -> EmailMessage:
    """The mail: a plain text, the same as a page, and the list as a file. No text of a job can become a line of its head."""
    made = EmailMessage(policy=SMTP)
    made["From"] = sender
    made["To"] = ", ".join(recipients)
    made["Subject"] = flat(report.subject)
    made["Date"] = format_datetime(report.at)
    made["Message-ID"] = f"<{report.id}.jobwell@{sender.rpartition('@')[2]}>"  # the same for a mail that is sent twice
    made["Auto-Submitted"] = "auto-generated"  # no machine answers it
    made.set_content(report.text)
    made.add_alternative(report.html, subtype="html")
    for file in report.attachments:
        kind, _, subtype = file.content_type.partition("/")
        made.add_attachment(file.data, maintype=kind, subtype=subtype, filename=file.name)
        if kind == "text":
            list(made.iter_attachments())[-1].set_param("charset", "utf-8")
    return made


async def send(server: Server, report: Report, recipients: Sequence[str]) -> dict[str, str]:
    """Hand it over, for all recipients at once.

    Returns:
        Whom the server has refused, and why; the others have it.

    Raises:
        NotSent: nobody has it, as far as is known; the sentence says why.
    """
    import aiosmtplib

    mail = message(report, recipients, server.sender)
    try:
        async with asyncio.timeout(WHOLE):
            refused, _ = await aiosmtplib.send(
                mail, sender=server.sender, recipients=list(recipients), hostname=server.host, port=server.port,
                username=server.user or None, password=server.password or None, use_tls=server.tls, start_tls=server.starttls,
                validate_certs=server.verify, cert_bundle=server.ca or None, timeout=STEP,
                local_hostname=server.sender.rpartition("@")[2],
            )  # fmt: skip
    except aiosmtplib.SMTPRecipientsRefused as error:
        told = "; ".join(f"{each.recipient}: {each.code} {each.message}" for each in error.recipients)
        raise NotSent(_sentence(server, f"refuses all recipients: {told}")) from error
    except aiosmtplib.SMTPResponseException as error:
        raise NotSent(_sentence(server, f"answers {error.code} {error.message}")) from error
    except TimeoutError as error:
        raise NotSent(_sentence(server, "does not answer in time")) from error
    except (aiosmtplib.SMTPException, OSError, ValueError) as error:
        raise NotSent(_sentence(server, f"cannot be used: {_cause(error)}")) from error
    return {who: flat(clean(f"{answer.code} {answer.message}", 300)) for who, answer in refused.items()}


def _cause(error: BaseException) -> str:
    """What lies below is what helps: a name that is not known, a certificate that does not fit."""
    said = str(error) or type(error).__name__
    below = error.__cause__ or error.__context__
    return f"{said} ({below})" if below is not None and str(below) and str(below) not in said else said


def _sentence(server: Server, what: str) -> str:
    return flat(clean(f"the mail server {server.place} {what}", 500))

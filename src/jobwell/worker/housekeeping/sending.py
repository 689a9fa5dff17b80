"""Whether a worker sends reports. What that takes (letters, tables, mail: 3 MB) is loaded only where it does."""

from typing import TYPE_CHECKING
from uuid import UUID

from jobwell.app import App
from jobwell.store.link import Link
from jobwell.worker.executors.threads import Threads

if TYPE_CHECKING:
    from jobwell.worker.housekeeping.reports import Reports


def reports_of(app: App, link: Link, threads: Threads, worker: UUID) -> "Reports | None":
    """The service of an app; None where it has no way to send.

    Raises:
        SettingsError: mail is to be sent, and its library is not installed.
    """
    url = app.settings.smtp_url
    if not url and app.report_hook is None:
        return None
    from jobwell.core import smtp
    from jobwell.reports import mail
    from jobwell.worker.housekeeping.reports import Reports
    from jobwell.worker.sender import Sender

    if url:
        mail.check()
    sender = Sender(smtp.read(url) if url else None, app.report_hook, threads)
    return Reports(app.database, link, threads, worker, sender)

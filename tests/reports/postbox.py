"""A mail server for tests: it keeps what it was given, and may be down, refuse, want a password, or speak TLS."""

import asyncio
import contextlib
import email.policy
import logging
import ssl
import threading
from collections.abc import Callable
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session

CERTIFICATE = Path(__file__).with_name("localhost.pem")
USER, PASSWORD = "jobs", "p@ss:w/rd?"  # whatever a URL minds is in it


class Postbox:
    """Serves on a free port of the loopback, in a thread of its own.

    Args:
        tls: "", "starttls" or "smtps".
        password: a user must give it.
        refused: recipients that are not known here.

    Attributes:
        mails: what was accepted.
        received: called with each mail before it is acknowledged.
    """

    def __init__(self, *, tls: str = "", password: bool = False, refused: tuple[str, ...] = ()) -> None:
        self.mails: list[EmailMessage] = []
        self.logins = 0
        self.received: Callable[[EmailMessage], Any] = lambda _: None
        self._tls, self._password, self._refused = tls, password, refused
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: asyncio.Server | None = None
        self.port = 0
        logging.getLogger("mail.log").setLevel(logging.ERROR)
        self.open()

    def open(self) -> None:
        """Serve, on the same port as before."""
        self._call(self._open())

    def shut(self) -> None:
        """Be down."""
        self._call(self._shut())

    def close(self) -> None:
        """Be gone."""
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    @property
    def subjects(self) -> list[str]:
        """Of what was accepted."""
        return [str(mail["Subject"]) for mail in self.mails]

    def _call(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _open(self) -> None:
        context = None
        if self._tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
        self._server = await self._loop.create_server(
            lambda: SMTP(
                self, hostname="box.example", loop=self._loop, tls_context=context if self._tls == "starttls" else None,
                auth_required=self._password, auth_require_tls=False, authenticator=self._authenticate,
            ), "127.0.0.1", self.port, ssl=context if self._tls == "smtps" else None,
        )  # fmt: skip
        self.port = self._server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        mine = [task for task in asyncio.all_tasks(self._loop) if task is not asyncio.current_task()]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)

    def _authenticate(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        self.logins += 1
        return AuthResult(success=(data.login, data.password) == (USER.encode(), PASSWORD.encode()), handled=False)

    async def handle_RCPT(self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]) -> str:  # noqa: N802  aiosmtpd looks for this name
        if address in self._refused:
            return "550 5.1.1 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802  aiosmtpd looks for this name
        content = envelope.content
        assert isinstance(content, bytes)
        mail = BytesParser(policy=email.policy.default).parsebytes(content)
        mail["X-Recipients"] = ", ".join(envelope.rcpt_tos)
        self.mails.append(mail)
        with contextlib.suppress(ProcessLookupError):
            self.received(mail)
        return "250 OK"

"""Sending mail from a worker process: a few SMTP connections that stay open."""

import asyncio
from typing import NamedTuple

import aiosmtplib

SENDER = "hr@corp.example"
TIMEOUT = 10.0
ANSWERS = (aiosmtplib.SMTPResponseException, aiosmtplib.SMTPRecipientsRefused)  # the conversation can go on after these


class Postman:
    """Owns the connections to one mail server within one event loop.

    Args:
        host: of the server.
        port: of the server.
        connections: at most so many at once.
    """

    def __init__(self, host: str, port: int, connections: int = 8) -> None:
        self._host = host
        self._port = port
        self._turn = asyncio.Semaphore(connections)
        self._free: list[aiosmtplib.SMTP] = []

    async def send(self, recipient: str, message: bytes) -> None:
        """Hand one message over.

        Raises:
            aiosmtplib.SMTPException: the server's answer, or the loss of the connection.
        """
        async with self._turn:
            line = await self._line()
            try:
                await line.sendmail(SENDER, [recipient], message)
            except BaseException as error:
                if isinstance(error, ANSWERS) and line.is_connected:
                    self._free.append(line)
                else:  # cancelled or broken in the middle
                    line.close()
                raise
            self._free.append(line)

    def close(self) -> None:
        """Close the connections that are free."""
        while self._free:
            self._free.pop().close()

    async def _line(self) -> aiosmtplib.SMTP:
        while self._free:
            line = self._free.pop()
            if line.is_connected:
                return line
        line = aiosmtplib.SMTP(hostname=self._host, port=self._port, local_hostname="localhost", start_tls=False, timeout=TIMEOUT)
        await line.connect()
        return line


class Answer(NamedTuple):
    """What a mail server says: three digits and a text."""

    code: int
    text: str

    def __str__(self) -> str:
        return f"{self.code} {self.text}"


def answer(error: aiosmtplib.SMTPException) -> Answer | None:
    """The server's answer; None where the conversation broke off without one."""
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        error = error.recipients[0]
    return Answer(error.code, error.message) if isinstance(error, aiosmtplib.SMTPResponseException) else None

"""A mail server on this machine that keeps a journal: `python -m jobwell.demo.sink --port-file … --mailbox …`.

It behaves as a provider does: now and then it answers 4xx to a first try, it refuses unknown addresses with 550, and a
Message-ID that it has accepted before is answered 250 and not delivered again.
"""

import argparse
import asyncio
import contextlib
import hashlib
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Final

from aiosmtpd.smtp import SMTP, Envelope, Session

from jobwell.demo.mailbox import DEFERRED, DELIVERED, REFUSED, REPEATED, Journal, Reader
from jobwell.demo.people import refusal

DEFERRED_SHARE: Final = 0.03
_HEADERS: Final = {b"message-id": "message_id", b"x-employee": "employee", b"x-event": "event"}


class Provider:
    """What the server answers, and what it remembers. The journal of an earlier process in the same folder is taken over.

    Args:
        folder: for the journal.
        deferred: the share of Message-IDs whose first try is answered 4xx; which ones, their hash decides.
    """

    def __init__(self, folder: Path, deferred: float = DEFERRED_SHARE) -> None:
        self._share = deferred
        past = list(Reader(folder).new())
        self._accepted = {entry["message_id"] for entry in past if entry["what"] == DELIVERED}
        self._put_off = {entry["message_id"] for entry in past if entry["what"] == DEFERRED}
        self._journal = Journal(folder)

    async def handle_RCPT(  # noqa: N802  the names are aiosmtpd's
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Refuse an unknown address."""
        answer = refusal(address)
        if answer:
            self._journal.add(REFUSED, mailbox=address)
            return answer
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Put off, recognise or deliver."""
        found = headers(envelope.original_content or b"")
        message_id = found.get("message_id", "")
        if not message_id:
            return "550 5.6.0 a message without Message-ID is not accepted here"
        if message_id not in self._put_off and message_id not in self._accepted and fraction(message_id) < self._share:
            self._put_off.add(message_id)
            self._journal.add(DEFERRED, message_id=message_id)
            return "451 4.7.1 try again later"
        what = REPEATED if message_id in self._accepted else DELIVERED
        self._accepted.add(message_id)
        for mailbox in envelope.rcpt_tos:
            self._journal.add(
                what, mailbox=mailbox, message_id=message_id, employee=found.get("employee", ""), event=found.get("event", "")
            )
        return "250 OK"

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()


def fraction(message_id: str) -> float:
    """A number in [0, 1) that is always the same for one Message-ID."""
    return int.from_bytes(hashlib.blake2b(message_id.encode(), digest_size=7).digest(), "big") / 2**56


def headers(content: bytes) -> dict[str, str]:
    """The headers that matter here, by plain splitting: a full parser would cost more than all the rest."""
    found = {}
    for line in content.partition(b"\r\n\r\n")[0].split(b"\r\n"):
        name, _, value = line.partition(b":")
        known = _HEADERS.get(name.lower())
        if known:
            found[known] = value.strip().decode("ascii", "replace")
    return found


async def serve(folder: Path, port_file: Path, *, deferred: float, with_parent: bool) -> None:
    """Serve on a free port of the loopback until SIGTERM or, with a parent, until it lets go of our standard input."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, stopped.set)
    if with_parent:
        threading.Thread(target=_wait_for_parent, args=(loop, stopped), daemon=True).start()
    provider = Provider(folder, deferred)
    server = await loop.create_server(
        lambda: SMTP(provider, hostname="sink.example", ident="Jobwell demo sink", loop=loop), "127.0.0.1", 0
    )
    try:
        # Renamed into place, so that whoever waits for the file never reads half a number.
        fresh = port_file.with_suffix(".new")
        fresh.write_text(str(server.sockets[0].getsockname()[1]), encoding="ascii")
        fresh.replace(port_file)
        await stopped.wait()
    finally:
        server.close()
        provider.close()


def _wait_for_parent(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    sys.stdin.buffer.read()
    with contextlib.suppress(RuntimeError):  # the loop has ended first
        loop.call_soon_threadsafe(stopped.set)


def main() -> None:
    """Run the server."""
    parser = argparse.ArgumentParser(prog="jobwell.demo.sink", description="A mail server for the demo.")
    parser.add_argument("--mailbox", type=Path, required=True, help="the folder for the journal")
    parser.add_argument("--port-file", type=Path, required=True, help="where to write the port, once it serves")
    parser.add_argument("--deferred", type=float, default=DEFERRED_SHARE, help="share of first tries that are answered 4xx")
    parser.add_argument("--with-parent", action="store_true", help="stop when standard input ends")
    given = parser.parse_args()
    logging.getLogger("mail.log").setLevel(logging.ERROR)  # a line for each command otherwise
    run = asyncio.run
    with contextlib.suppress(ImportError):
        import uvloop

        run = uvloop.run
    run(serve(given.mailbox, given.port_file, deferred=given.deferred, with_parent=given.with_parent))


if __name__ == "__main__":
    main()

"""What systemd is told by `Type=notify`: ready, alive, stopping. Nothing where it does not listen."""

import contextlib
import os
import socket
import time


class Systemd:
    """Speaks to the socket in NOTIFY_SOCKET, where there is one."""

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")  # not for what we start
        usec = os.environ.pop("WATCHDOG_USEC", "")
        self._every = int(usec) / 2e6 if usec.isdecimal() else 0.0
        self._next = 0.0

    def tell(self, state: str) -> None:
        """One message, such as READY=1 or STATUS=…."""
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(state.encode(), address)

    def alive(self) -> None:
        """A sign of life, as often as the watchdog wants one."""
        now = time.monotonic()
        if self._every and now >= self._next:
            self._next = now + self._every
            self.tell("WATCHDOG=1")

"""A TCP proxy that can fall silent, cut its connections, or refuse new ones."""

import contextlib
import socket
import threading

from jobwell import App
from jobwell.client.task import Task
from tests.fronts import target_of, url_through


class Line:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket, *, dead: bool) -> None:
        self.ends = (client, server)
        self.dead = dead  # what is sent is taken, acknowledged, and lost

    def pump(self, source: socket.socket, target: socket.socket) -> None:
        """Carry bytes one way, to the end."""
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self.dead:
                    target.sendall(data)
        self.cut()

    def cut(self) -> None:
        """End it, both ways."""
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Stands before a server, on a port of this host.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        self._target = target_of(url)
        self._silent = False
        self._lines: list[Line] = []
        self._listener: socket.socket | None = None
        self.port = 0
        self.open()
        self.url = url_through(url, self.port, "disable")

    def open(self) -> None:
        """Take connections; the port stays the same."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def _serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                family = socket.AF_UNIX if isinstance(self._target, str) else socket.AF_INET
                server = socket.socket(family)
                try:
                    server.connect(self._target)
                except OSError:
                    server.close()
                    client.close()
                    continue
                line = Line(client, server, dead=self._silent)
                self._lines.append(line)
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=line.pump, args=ends, daemon=True).start()

    def lead_to(self, host: str, port: int) -> None:
        """New connections go there; those that there are go on."""
        self._target = (host, port)

    def fall_silent(self) -> None:
        """Every connection is forgotten without a word, for good; new ones are taken and get no answer."""
        self._silent = True
        for line in self._lines:
            line.dead = True

    def speak(self) -> None:
        """New connections work again."""
        self._silent = False

    def cut(self) -> None:
        """End every connection."""
        for line in self._lines:
            line.cut()

    def close(self) -> None:
        """Refuse new connections, and end the others."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.cut()
        for line in self._lines:
            for end in line.ends:
                end.close()
        self._lines.clear()


def note_of(app: App) -> "Task[..., None]":
    """A task to enqueue."""

    @app.task(name="note")
    def note(n: int = 0) -> None: ...

    return note

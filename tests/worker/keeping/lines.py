"""A line to the server that is cut at a statement: before the server has it, or before the answer has come back."""

import contextlib
import socket
import threading

from tests.fronts import target_of, url_through

TASKS = b"jobwell transaction\0"  # the application name of the connections that tasks write over


class CutLine:
    """A proxy before the server.

    Args:
        url: of the server.
        who: what connections that may be cut say at their beginning.
        needle: the statement at which they are.
        later: packets after it: a statement that is prepared is carried out by the next one.
    """

    def __init__(self, url: str, who: bytes = TASKS, needle: bytes = b"COMMIT", later: int = 0) -> None:
        self._who = who
        self._later = later
        self._needle = needle
        self._target = target_of(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = url_through(url, self._listener.getsockname()[1], "disable")
        self.cut_at: str = ""  # "before" or "after": for one cut
        self.cuts = 0
        self._ends = [self._listener]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX if isinstance(self._target, str) else socket.AF_INET)
                server.connect(self._target)
                self._ends += [client, server]
                committing = threading.Event()
                threading.Thread(target=self._up, args=(client, server, committing), daemon=True).start()
                threading.Thread(target=self._down, args=(client, server, committing), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket, committing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            of_tasks, left = False, -1
            while data := client.recv(65536):
                of_tasks = of_tasks or self._who in data
                left = self._later if self._needle in data and of_tasks else left - 1
                if self.cut_at and left == 0:
                    at, self.cut_at = self.cut_at, ""
                    self.cuts += 1
                    if at == "before":
                        break
                    committing.set()
                server.sendall(data)
        self._end(client, server)

    def _down(self, client: socket.socket, server: socket.socket, committing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if committing.is_set():
                    break  # the server has committed; nobody will hear of it
                client.sendall(data)
        self._end(client, server)

    @staticmethod
    def _end(*ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End everything."""
        self._end(*self._ends)
        for end in self._ends:
            end.close()

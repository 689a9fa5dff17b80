"""A front that speaks TLS before a server that may have none; its certificate is worth nothing anywhere else."""

import contextlib
import select
import socket
import ssl
import struct
import threading
from pathlib import Path

from tests.fronts import target_of, url_through

WANTS_TLS, WANTS_GSS = 80877103, 80877104


class Front:
    """Stands before a server, on a port of this host; refuses who does not want TLS.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        self._target = target_of(url)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(Path(__file__).with_name("server.pem"))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.served = 0
        self.broken: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()
        self.url = url_through(url, self._listener.getsockname()[1], "require")

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connection, args=(client,), daemon=True).start()

    def _connection(self, raw: socket.socket) -> None:
        try:
            while (wish := struct.unpack("!II", raw.recv(8, socket.MSG_WAITALL))[1]) == WANTS_GSS:
                raw.sendall(b"N")
            assert wish == WANTS_TLS
            raw.sendall(b"S")
            client = self._context.wrap_socket(raw, server_side=True)
            server = socket.socket(socket.AF_UNIX if isinstance(self._target, str) else socket.AF_INET)
            server.connect(self._target)
            self.served += 1
            with client, server:
                _carry(client, server)
        except ssl.SSLError as error:
            self.broken.append(str(error))
        except (OSError, struct.error):
            raw.close()  # a client that left

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _carry(client: ssl.SSLSocket, server: socket.socket) -> None:
    while True:
        ready = [client] if client.pending() else select.select([client, server], [], [])[0]
        for source in ready:
            data = source.recv(65536)
            if not data:
                return
            (server if source is client else client).sendall(data)

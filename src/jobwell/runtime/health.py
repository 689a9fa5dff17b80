"""`/healthz` and `/readyz` over HTTP, for orchestrators. One thread; answers JSON; knows nothing but a function that reports.

* `/healthz`: 200 while the processes live and answer. Says nothing about the database: a restart would not mend it.
* `/readyz`: 200 while jobs are being looked for: some process claims, and its loops make good rounds.
"""

import json
import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from jobwell.core.errors import SettingsError

log = logging.getLogger("jobwell.health")

Report = Callable[[], dict[str, Any]]


class Health:
    """The endpoint.

    Args:
        address: "host:port", ":port" (loopback) or "port"; "0.0.0.0:port" is for containers.
        report: made at each request: `healthy` and `ready` decide, and all of it is shown.

    Raises:
        SettingsError: the address cannot be read or is taken.
    """

    def __init__(self, address: str, report: Report) -> None:
        host, _, port = address.rpartition(":")
        if not port.isdecimal() or not 0 <= int(port) <= 65535:
            raise SettingsError(f"health={address!r} is no address: give a port, or host:port")

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                verdicts = {"/healthz": "healthy", "/readyz": "ready"}
                verdict = verdicts.get(self.path.split("?", 1)[0])
                if verdict is None:
                    self.send_error(404)
                    return
                found = report()
                body = json.dumps(found, default=str).encode()
                self.send_response(200 if found[verdict] else 503)
                self.send_header("Content-Type", "application/json")
                self.send_header("Cache-Control", "no-store")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name there
                log.debug(format, *args)

        try:
            self._server = ThreadingHTTPServer((host or "127.0.0.1", int(port)), Answer)
        except OSError as error:
            raise SettingsError(f"health={address!r} cannot be listened on: {error.strerror or error}") from None
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="jobwell-health", daemon=True).start()

    def close(self) -> None:
        """No more answers."""
        self._server.shutdown()
        self._server.server_close()

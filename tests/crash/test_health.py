"""What probes are told."""

import json
import socket
import urllib.error
import urllib.request
from typing import Any

from jobwell import App
from tests.crash import app_under_test as tasks
from tests.crash.conftest import SIGSTOP, SIGTERM, Fleet
from tests.crash.test_poison import put
from tests.waiting import until


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def ask(port: int, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        body = error.read()
        return error.code, json.loads(body) if body.startswith(b"{") else None


def test_probes_tell_life_and_readiness(app: App, fleet: Fleet) -> None:
    shop, port = put(app, fleet), free_port()
    supervisor = fleet.start(2, slots=7, health=port)
    until(lambda: ask(port, "/readyz")[0] == 200)  # one of them claims
    until(lambda: [each.get("slots") for each in ask(port, "/readyz")[1]["processes"]] == [7, 7])
    assert ask(port, "/healthz")[0] == 200
    assert ask(port, "/other")[0] == 404
    shop.enqueue_many([tasks.nap.job(3, str(n)) for n in range(4)])
    until(lambda: sum(each.get("busy", 0) for each in ask(port, "/healthz")[1]["processes"]) == 4)
    for worker in fleet.children(supervisor):
        worker.send_signal(SIGSTOP)
    until(lambda: ask(port, "/healthz")[1]["processes"][0]["silent"] > 2)
    supervisor.send_signal(SIGTERM)
    until(lambda: ask(port, "/healthz")[1]["stopping"])
    shop.close()


def test_a_wrong_address_is_refused_at_the_start(app: App, fleet: Fleet) -> None:
    import os
    import subprocess
    import sys

    environ = {**os.environ, "JOBWELL_DATABASE_URL": fleet.url, "JOBWELL_HEALTH": "nowhere"}
    said = subprocess.run(
        [sys.executable, "-m", "jobwell", "worker", "tests.crash.app_under_test:app"], env=environ, capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip
    assert said.returncode == 78
    assert "health='nowhere' is no address" in said.stderr

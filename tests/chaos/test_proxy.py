"""The network that misbehaves: it passes bytes, holds them back, cuts, and heals."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobwell.lab.chaos.proxy import Network
from tests.waiting import until


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that says everything back."""
    path = Path(f"/tmp/jobwell-echo-{os.getpid()}")  # short enough for a socket
    listener = socket.socket(socket.AF_UNIX)
    path.unlink(missing_ok=True)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=answer, args=(client,), daemon=True).start()

    def answer(client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            while data := client.recv(1000):
                client.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    yield str(path)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    path.unlink()


@pytest.fixture
def network(echo: str) -> Iterator[Network]:
    made = Network(echo, 2)
    yield made
    made.close()


def call(network: Network, number: int = 0, hello: bytes = b"hello") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", network.proxies[number].port), timeout=10)
    try:
        made.sendall(hello)
        assert made.recv(100) == hello
    except BaseException:
        made.close()
        raise
    return made


def test_a_stall_holds_bytes_back_and_loses_none(network: Network) -> None:
    with call(network) as stalled, call(network, 1) as beside:
        network.proxies[0].stall()
        stalled.sendall(b"one")
        stalled.settimeout(0.3)
        with pytest.raises(TimeoutError):
            stalled.recv(100)
        beside.sendall(b"free")
        assert beside.recv(100) == b"free"
        network.proxies[0].heal()
        stalled.settimeout(10)
        assert stalled.recv(100) == b"one"


def test_outcomes_are_held_back_alone_and_arrive_after_the_death_of_their_sender(network: Network) -> None:
    with call(network, hello=b"application_name\0jobwell finish\0") as outcomes, call(network) as beside:
        network.proxies[0].hold_outcomes()
        outcomes.sendall(b"done")
        beside.sendall(b"alive")
        assert beside.recv(100) == b"alive"
        outcomes.settimeout(0.3)
        with pytest.raises(TimeoutError):
            outcomes.recv(100)
        outcomes.shutdown(socket.SHUT_WR)
        network.proxies[0].heal()
        outcomes.settimeout(10)
        assert outcomes.recv(100) == b"done"


def test_a_cut_ends_connections_and_takes_none_until_it_is_healed(network: Network) -> None:
    with call(network) as before:
        network.proxies[0].cut()
        with contextlib.suppress(ConnectionResetError):
            assert before.recv(100) == b""
    with pytest.raises((ConnectionError, AssertionError)):
        call(network)
    network.proxies[0].heal()

    def again() -> bool:
        try:
            call(network).close()
        except (ConnectionError, AssertionError):
            return False
        return True

    until(again)

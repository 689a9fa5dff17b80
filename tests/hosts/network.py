"""Hosts on one machine: network namespaces, a switch between them, and cables that are cut, slow, or lose packets.

A host is a namespace with one interface; its cable ends at a bridge in a namespace of its own, which is the switch. A cut is
made at the switch: the host's own interface stays up, and what it sends goes nowhere, without a word. Delay and loss are made
between two TAP devices by a thread, packet by packet, since not every kernel has netem (CONFIG_NET_SCH_NETEM).
"""

import contextlib
import fcntl
import functools
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

SPACES = Path("/run/netns")
TUN = "/dev/net/tun"
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
PREFIX = "jwt"


def ip(*words: str) -> None:
    """Run `ip`."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()}"


@functools.cache
def impossible() -> str:
    """Why no hosts can be made here; empty where they can."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces are made by root"
    if shutil.which("ip") is None:
        return "there is no `ip` (apt-get install iproute2)"
    name = f"{PREFIX}{os.getpid()}-try"
    try:
        ip("netns", "add", name)
        try:
            ip("netns", "exec", name, "true")
            ip("-n", name, "link", "add", "one", "type", "veth", "peer", "name", "two")
            ip("-n", name, "link", "add", "br0", "type", "bridge")
        finally:
            ip("netns", "del", name)
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        return f"network namespaces cannot be made here: {error}"
    return ""


@functools.cache
def impossible_cables() -> str:
    """Why no slow cable can be made here; empty where it can."""
    why = impossible()
    if not why:
        try:
            os.close(_tap(f"{PREFIX}try{os.getpid() % 100000}"))
        except OSError as error:
            why = f"{TUN} cannot be used here: {error}"
    return why


def sweep() -> None:
    """Delete namespaces that killed test runs have left."""
    for name in [path.name for path in SPACES.iterdir()] if SPACES.is_dir() else []:
        owner = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and owner.isdigit() and not psutil.pid_exists(int(owner)):
            with contextlib.suppress(AssertionError):
                ip("netns", "del", name)


def _tap(name: str) -> int:
    file = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    except OSError:
        os.close(file)
        raise
    return file


class Cable:
    """Carries frames between two TAP devices.

    Args:
        names: of the devices; they are in the caller's namespace, to be moved.
        delay: seconds, one way.
        loss: of a frame, from 0 to 1.
        seed: of the loss.
    """

    def __init__(self, names: Sequence[str], *, delay: float, loss: float, seed: int = 1) -> None:
        self._ends = [_tap(name) for name in names]
        self._delay, self._loss, self._random = delay, loss, random.Random(seed)
        self._under_way: list[tuple[float, int, int, bytes]] = []
        self._wake, self._ending = os.pipe()
        self.carried = self.dropped = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        poll = select.poll()
        for end in (*self._ends, self._wake):
            poll.register(end, select.POLLIN)
        while True:
            rest = max(0.0, self._under_way[0][0] - time.monotonic()) * 1000 if self._under_way else None
            for file, _ in poll.poll(rest):
                if file == self._wake:
                    return
                self._take(file)
            while self._under_way and self._under_way[0][0] <= time.monotonic():
                _, _, to, frame = heapq.heappop(self._under_way)
                with contextlib.suppress(OSError):  # not up yet, or full
                    os.write(to, frame)

    def _take(self, file: int) -> None:
        other = self._ends[1 - self._ends.index(file)]
        with contextlib.suppress(OSError):  # nothing more
            while True:
                frame = os.read(file, 65536)
                if self._random.random() < self._loss:
                    self.dropped += 1
                    continue
                self.carried += 1
                heapq.heappush(self._under_way, (time.monotonic() + self._delay, self.carried, other, frame))

    def close(self) -> None:
        """Pull it out."""
        os.close(self._ending)
        self._thread.join(5)
        for file in (*self._ends, self._wake):
            os.close(file)


class Host:
    """A namespace with an address.

    Attributes:
        address: in the test's own network.
        run: what to put before a command, to have it run there as root.
    """

    def __init__(self, space: str, port: str, address: str) -> None:
        self.space = space
        self.port = port
        self.address = address
        self.run = ("ip", "netns", "exec", space)


class Network:
    """A switch, and hosts at it. Nothing of the machine's own network is touched."""

    def __init__(self) -> None:
        sweep()
        self._base = f"{PREFIX}{os.getpid()}-{time.monotonic_ns() % 10**6}"
        self._switch = f"{self._base}-s"
        self._spaces: list[str] = []
        self.cables: list[Cable] = []
        self._space(self._switch)
        ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self._switch, "link", "set", "br0", "up")

    def _space(self, name: str) -> None:
        ip("netns", "add", name)
        self._spaces.append(name)
        ip("-n", name, "link", "set", "lo", "up")

    def host(self, *, delay: float = 0.0, loss: float = 0.0) -> Host:
        """One more host.

        Args:
            delay: seconds on its cable, one way.
            loss: of a frame on its cable, from 0 to 1.
        """
        number = len(self._spaces)
        space, port = f"{self._base}-{number}", f"p{number}"
        self._space(space)
        if delay or loss:
            names = [f"{PREFIX}{os.getpid() % 100000}{end}{number}" for end in "ab"]
            self.cables.append(Cable(names, delay=delay, loss=loss))
            ip("link", "set", names[0], "netns", space, "name", "eth0")
            ip("link", "set", names[1], "netns", self._switch, "name", port)
        else:
            ip("-n", self._switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
        host = Host(space, port, f"10.77.0.{number}")
        ip("-n", space, "addr", "add", f"{host.address}/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        ip("-n", self._switch, "link", "set", port, "master", "br0")
        ip("-n", self._switch, "link", "set", port, "up")
        return host

    def cut(self, host: Host) -> None:
        """What it sends goes nowhere, and nothing reaches it; it is not told."""
        ip("-n", self._switch, "link", "set", host.port, "nomaster")

    def heal(self, host: Host) -> None:
        """It is connected again."""
        ip("-n", self._switch, "link", "set", host.port, "master", "br0")

    def close(self) -> None:
        """Take it all down; what runs in the namespaces must have ended."""
        for cable in self.cables:
            cable.close()
        for space in self._spaces:
            with contextlib.suppress(AssertionError):
                ip("netns", "del", space)

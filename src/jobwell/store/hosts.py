"""URLs with several hosts: a server and its standbys, of which one can be written at a time.

The driver tries one host after the other, each for `connect_timeout`. Where the first one is gone without a word, that would
be paid at each connection; so the one that answered last is asked first.
"""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Pair = tuple[str, str]  # host and port; no port: the usual one

LISTS = ("host", "hostaddr", "port")
LEAST = 2.0  # seconds: the driver waits no shorter
_FAILURE = re.compile(r"^- host: (.*?), port: (.*?), hostaddr: (?:None|'[^']*'): (.*)$", re.MULTILINE)
_SAID_BEFORE = re.compile(r"^connection failed: (connection to server .*? failed: )?")


def pairs(parameters: Mapping[str, Any]) -> list[Pair]:
    """The hosts that connection parameters name, in their order."""
    hosts = str(parameters.get("host") or parameters.get("hostaddr") or "").split(",")
    ports = str(parameters.get("port") or "").split(",")
    return list(zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=False))


def timeout(parameters: Mapping[str, Any], usual: float, limit: float) -> int:
    """Seconds for each host, so that all of them together have their time.

    Args:
        parameters: of the URL; its own `connect_timeout` is for one host.
        usual: seconds for all, where nobody says more.
        limit: seconds that the caller has; 0: as long as the URL says.
    """
    count, told = len(pairs(parameters)), 0.0
    with contextlib.suppress(ValueError):  # the driver will say what is wrong with it
        told = float(parameters.get("connect_timeout") or 0)
    if told > 0 and not limit:
        each = told
    else:
        each = min(usual, limit or usual) / count
        each = min(each, told) if told > 0 else each
    return round(max(LEAST, each))


class Hosts:
    """Knows which of several hosts has answered last. One for each process that connects; used by any thread."""

    def __init__(self) -> None:
        self._last: dict[frozenset[Pair], Pair] = {}
        self._doubted: dict[frozenset[Pair], Pair] = {}

    def arranged(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters, with the host first that answered last; or last, where it fell silent since."""
        found = pairs(parameters)
        key = frozenset(found)
        last = self._last.get(key)
        if last is None or last not in found:
            return dict(parameters)
        first = (found.index(last) + (self._doubted.get(key) == last)) % len(found)
        turned = dict(parameters)
        for name in LISTS:
            parts = str(parameters.get(name) or "").split(",")
            if len(parts) == len(found):
                turned[name] = ",".join(parts[first:] + parts[:first])
        return turned

    def answered(self, parameters: Mapping[str, Any], host: str, port: int) -> "Way | None":
        """A connection was made with these parameters; it leads there. None: there is no other host, or no telling."""
        found = pairs(parameters)
        there = next((pair for pair in found if pair[0] == host and pair[1] in ("", str(port))), None)
        if len(found) < 2 or there is None or parameters.get("load_balance_hosts") == "random":
            return None
        key = frozenset(found)
        self._last[key] = there
        self._doubted.pop(key, None)
        return Way(self, key, there)

    def left(self, way: "Way") -> bool:
        """Whether another host has answered since."""
        return self._last.get(way.key) != way.there

    def doubt(self, way: "Way") -> None:
        """It fell silent: the others are asked first."""
        self._doubted[way.key] = way.there


@dataclass(frozen=True)
class Way:
    """Of a connection to one of several hosts."""

    hosts: Hosts
    key: frozenset[Pair]
    there: Pair

    @property
    def left(self) -> bool:
        """Whether the primary is elsewhere now, as far as this process knows."""
        return self.hosts.left(self)

    def doubt(self) -> None:
        """The connection fell silent."""
        self.hosts.doubt(self)


def failures(said: str) -> list[tuple[str, str]]:
    """Host and reason of each attempt, out of what the driver says when none of several hosts can be used; else empty."""
    found = [(host.strip("'"), port.strip("'"), why) for host, port, why in _FAILURE.findall(said)]
    return [(f"{host}:{port}" if port != "None" else host, _SAID_BEFORE.sub("", why)) for host, port, why in found]

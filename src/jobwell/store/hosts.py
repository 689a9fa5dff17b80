"""URLs with several hosts: a server and its standbys, of which one can be written at a time.

The driver tries one host after the other, each for `connect_timeout`. Where the first one is gone without a word, that would
be paid at each connection; so the one that answered last is asked first.
"""

import contextlib
import re
from collections.abc import Mapping
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

    def arranged(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters, with the host first that answered last; the order is otherwise the URL's."""
        found = pairs(parameters)
        last = self._last.get(frozenset(found))
        if last is None or last not in found:
            return dict(parameters)
        first = found.index(last)
        turned = dict(parameters)
        for name in LISTS:
            parts = str(parameters.get(name) or "").split(",")
            if len(parts) == len(found):
                turned[name] = ",".join(parts[first:] + parts[:first])
        return turned

    def answered(self, parameters: Mapping[str, Any], host: str, port: int) -> None:
        """A connection was made with these parameters; it leads there."""
        found = pairs(parameters)
        if len(found) > 1:
            there = next((pair for pair in found if pair[0] == host and pair[1] in ("", str(port))), None)
            if there is not None:
                self._last[frozenset(found)] = there


def failures(said: str) -> list[tuple[str, str]]:
    """Host and reason of each attempt, out of what the driver says when none of several hosts can be used; else empty."""
    found = [(host.strip("'"), port.strip("'"), why) for host, port, why in _FAILURE.findall(said)]
    return [(f"{host}:{port}" if port != "None" else host, _SAID_BEFORE.sub("", why)) for host, port, why in found]

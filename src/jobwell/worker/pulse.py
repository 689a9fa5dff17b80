"""Signs of life from a worker to its supervisor, over a pipe: they need neither the loop nor the database.

Code that holds the interpreter lock (a C library) stops every thread of its process, the heartbeat too. The supervisor sees that
the signs stop while the process lives, and renews the lease in its place.
"""

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

VARIABLE = "JOBWELL_PULSE"
ATOMIC = 4000


class Pulse:
    """The worker's end.

    Args:
        descriptor: of the pipe; None where nobody listens.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @classmethod
    def of_process(cls) -> "Pulse":
        """The one that the supervisor has given to this process."""
        given = os.environ.pop(VARIABLE, "")  # not for what this process starts
        if not given:
            return cls(None)
        descriptor = int(given)
        os.set_blocking(descriptor, False)
        os.set_inheritable(descriptor, False)  # noqa: FBT003  it takes no name
        return cls(descriptor)

    def beat(self, told: Mapping[str, Any] | None = None) -> None:
        """A sign of life, from any thread, with what else there is to tell. A full pipe has signs enough."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # one line below the size of an atomic write
                os.write(self._descriptor, json.dumps(told or {}, default=str).encode()[:ATOMIC] + b"\n")


class Listener:
    """The supervisor's end.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ours, self.theirs = os.pipe()
        os.set_blocking(self._ours, False)
        self._heard = clock()
        self._rest = b""
        self.told: dict[str, Any] = {}

    @property
    def silent(self) -> float:
        """Seconds since the last sign. What came with it is in `told`."""
        with contextlib.suppress(OSError):
            while got := os.read(self._ours, 65536):
                self._heard = self._clock()
                *lines, self._rest = (self._rest + got).split(b"\n")
                with contextlib.suppress(ValueError):  # a line that was cut
                    self.told = json.loads(lines[-1]) if lines else self.told
        return self._clock() - self._heard

    def given(self) -> None:
        """The worker has its end: ours of it is closed, and time counts."""
        os.close(self.theirs)
        self._heard = self._clock()

    def discard(self) -> None:
        """There is no worker."""
        os.close(self.theirs)
        os.close(self._ours)

    def close(self) -> None:
        """The worker is gone."""
        os.close(self._ours)

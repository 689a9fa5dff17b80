"""Signs of life from a worker to its supervisor, over a pipe: they need neither the loop nor the database.

Code that holds the interpreter lock (a C library) stops every thread of its process, the heartbeat too. The supervisor sees that
the signs stop while the process lives, and renews the lease in its place.
"""

import contextlib
import os
from collections.abc import Callable

VARIABLE = "JOBWELL_PULSE"


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

    def beat(self) -> None:
        """A sign of life, from any thread. A full pipe has signs enough."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.write(self._descriptor, b".")


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

    @property
    def silent(self) -> float:
        """Seconds since the last sign."""
        with contextlib.suppress(OSError):
            while os.read(self._ours, 65536):
                self._heard = self._clock()
        return self._clock() - self._heard

    def given(self) -> None:
        """The worker has its end: ours of it is closed, and time counts."""
        os.close(self.theirs)
        self._heard = self._clock()

    def close(self) -> None:
        """The worker is gone."""
        os.close(self._ours)

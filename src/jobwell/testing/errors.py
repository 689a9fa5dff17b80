"""What the kit itself has to say."""

from jobwell.core.errors import JobwellError


class TestbedError(JobwellError):
    """The kit was asked for what it cannot do. The sentence says what to do instead."""

    __test__ = False  # the name must not make pytest look for tests in it


class EndlessDrain(TestbedError):
    """A drain came to its limit, and there was still work."""


class AttemptFailed(TestbedError):
    """An attempt failed without an error of the task: over its time limit, past its deadline, or a payload that does not fit."""

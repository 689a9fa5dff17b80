"""For the tests of an application: its jobs on a real PostgreSQL, run step by step, with a clock that travels.

`with Testbed(app) as bed:`, or the fixture `testbed` of the pytest plugin.
"""

from jobwell.testing.clock import Clock
from jobwell.testing.errors import AttemptFailed, EndlessDrain, TestbedError
from jobwell.testing.schema import Schema
from jobwell.testing.testbed import Testbed
from jobwell.testing.views import Drained, JobView, Ran

__all__ = ["AttemptFailed", "Clock", "Drained", "EndlessDrain", "JobView", "Ran", "Schema", "Testbed", "TestbedError"]

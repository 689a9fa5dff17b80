"""Found by a Python whose path leads here: its host's clock is off by what a file says, in seconds, and may jump at any time.

What is read is what people mean by the time: `time.time()`, `datetime.now()`, the time in new ids. The monotonic clock goes on.
"""

import ctypes
import gc
import os
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from uuid import UUID

FILE = Path(os.environ["TESTS_CLOCK"])
_true = time.time
_now = datetime.now


def _off() -> float:
    return float(FILE.read_text(encoding="ascii") or 0)


def _time() -> float:
    return _true() + _off()


def _wrong_now(tz: tzinfo | None = None) -> datetime:
    return _now(tz) + timedelta(seconds=_off())


time.time = _time
time.time_ns = lambda: int(_time() * 1e9)
_methods = gc.get_referents(datetime.__dict__)[0]  # the class is C's own, and cannot be patched in the usual way
_methods["now"] = staticmethod(_wrong_now)
_methods["utcnow"] = staticmethod(lambda: _wrong_now(UTC).replace(tzinfo=None))
ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime))

try:
    from uuid_utils import compat
except ImportError:  # another Python, which has nothing of ours
    pass
else:
    _uuid7 = compat.uuid7
    compat.uuid7 = lambda: UUID(int=int(_time() * 1000) << 80 | _uuid7().int & ((1 << 80) - 1))

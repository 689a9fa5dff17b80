"""Why a worker ends, and which errors of its services are no reason to."""

import logging

from jobwell.core.errors import StoreError
from jobwell.store.database import is_lost

log = logging.getLogger("jobwell.worker")

EXIT_OK, EXIT_LOST, EXIT_STUCK, EXIT_ASKED, EXIT_FAILED = 0, 3, 4, 6, 7  # and 5 (watch.py); 1 is anybody's


def is_weather(error: BaseException) -> bool:
    """Whether it passes by itself: the store is away, or has no room."""
    return is_lost(error) or isinstance(error, StoreError)


def bearable(name: str, error: BaseException) -> None:
    """Housekeeping that fails again and again is somebody's fault to mend, and no reason to end what works."""
    log.critical("%s fails again and again, and is tried on: %s", name, error)

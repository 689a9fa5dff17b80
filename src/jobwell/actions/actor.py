"""Who acts."""

import getpass
import os

from jobwell.core.text import clean

LONGEST = 200


def actor(by: str | None = None) -> str:
    """Who acts: as given, else the user of the operating system."""
    if by:
        return by
    try:
        return clean(getpass.getuser(), LONGEST)
    except (KeyError, OSError):  # a container whose user has no name
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"

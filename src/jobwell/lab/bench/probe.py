"""The laboratory's app with a clock at each claim of its worker: what `pinned` starts in place of the plain one.

Each claim that found work is one line (end on the host's clock, seconds, jobs) in the file that `BENCH_CLAIMS` names. Written at
once, since a worker ends without exit hooks.
"""

import os
import time
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection

from jobwell.lab.tasks import app
from jobwell.store.jobs import Batch, ClaimRequest, JobVerbs

__all__ = ["VARIABLE", "app", "read"]

VARIABLE = "BENCH_CLAIMS"


def read(file: Path) -> list[tuple[float, float, int]]:
    """What was written: (end, seconds, jobs) of each claim."""
    lines = (line.split() for line in file.read_text(encoding="ascii").splitlines())
    return [(float(end), float(took), int(jobs)) for end, took, jobs in lines]


def _install(name: str) -> None:
    file = os.open(name, os.O_WRONLY | os.O_APPEND)
    plain = JobVerbs.claim

    async def timed(self: JobVerbs, conn: "AsyncConnection[Any]", request: ClaimRequest) -> Batch:
        began = time.monotonic()
        rows = await plain(self, conn, request)
        ended = time.monotonic()
        if rows:
            os.write(file, f"{ended:.6f} {ended - began:.6f} {len(rows)}\n".encode())
        return rows

    JobVerbs.claim = timed  # type: ignore[method-assign]


if VARIABLE in os.environ:
    _install(os.environ[VARIABLE])

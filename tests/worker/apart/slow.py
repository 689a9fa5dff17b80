"""An app whose import takes longer in a child than its task may run."""

import multiprocessing
import os

from jobwell import App, Fixed, SyncContext
from tests.waiting import pause

if multiprocessing.parent_process() is not None:
    pause(1.5)

app = App()


@app.task(name="slow.quick", executor="process", timeout="1s", retry=Fixed("10ms", attempts=1, jitter=0))
def quick() -> int:
    """Where it ran."""
    return os.getpid()


@app.task(name="slow.walk", executor="process", timeout="30s")
def walk(ctx: SyncContext) -> None:
    """For a second."""
    for _ in ctx.resume(range(100)):
        pause(0.01)

"""What a worker runs in children: where they come from, and which gates lead there."""

import sys
from collections.abc import Callable
from datetime import datetime

from jobwell.app import App
from jobwell.core.catalog import Catalog
from jobwell.core.errors import SettingsError
from jobwell.core.ids import alone
from jobwell.worker.executors.children import Children
from jobwell.worker.executors.threads import Threads
from jobwell.worker.fetcher import Apart
from jobwell.worker.loading import name_of
from jobwell.worker.pools import Pools


def make_children(app: App, threads: Threads, now: Callable[[], datetime]) -> Children | None:
    """Where jobs run alone. They must find the app by its name; without one, suspects run here, like everything.

    Raises:
        SettingsError: a task is declared so, and the app has no name.
    """
    target, declared = name_of(app), [spec.name for spec in app.catalog if spec.executor == "process"]
    if declared and target is None:
        raise SettingsError(f"the task {declared[0]} runs in a child process, and the app is in no module where a child finds it")
    if target is None or sys.platform == "win32":
        return None
    return Children(app.settings.children, target, threads, now, app.overridden)


def what_runs_apart(catalog: Catalog, children: Children | None, running: Callable[[], int], pools: Pools | None) -> Apart | None:
    """The gates behind which jobs wait for a child.

    Args:
        catalog: tasks; suspects of each of them run alone.
        children: None where there are none.
        running: tells how many jobs run in them.
        pools: say whether heavy tasks wait for memory; None: nothing waits.
    """
    if children is None:
        return None
    specs = list(catalog)
    declared = [gate for spec in specs if spec.executor == "process" for gate in spec.gates]
    suspects = [alone(gate) for spec in specs for gate in spec.gates]
    heavy = [gate for spec in specs if spec.heavy for gate in spec.gates]
    return Apart(
        declared, suspects, lambda: children.size - running(),
        heavy=frozenset((*heavy, *map(alone, heavy))), held=lambda: pools is not None and not pools.heavy,
    )  # fmt: skip

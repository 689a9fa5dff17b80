"""Which scenarios there are, and how one is run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from jobwell.lab.bench.bounds import bounds
from jobwell.lab.bench.drain import drain, io, lanes
from jobwell.lab.bench.enqueue import enqueue_bulk, enqueue_once, enqueue_single
from jobwell.lab.bench.latency import latency
from jobwell.lab.bench.memory import memory
from jobwell.lab.bench.pinned import pinned
from jobwell.lab.bench.place import Bench, Say, open_bench
from jobwell.lab.bench.result import Result
from jobwell.lab.bench.scale import scale
from jobwell.lab.bench.storm import storm
from jobwell.settings import Settings


@dataclass(frozen=True)
class Scenario:
    """One of them.

    Attributes:
        jobs: how many, unless told otherwise.
        play: runs it.
        own_database: whether it would reach the other tables of the database that it runs in.
        lasts: whether it takes `seconds`.
    """

    jobs: int
    play: Callable[..., Result]
    own_database: bool = False
    lasts: bool = False


SCENARIOS: Mapping[str, Scenario] = {
    "drain": Scenario(60_000, drain),
    "drain-2": Scenario(60_000, partial(drain, processes=2)),
    "enqueue-bulk": Scenario(100_000, enqueue_bulk),
    "enqueue-bulk-dedup": Scenario(100_000, enqueue_once),
    "enqueue-single": Scenario(10_000, enqueue_single),
    "enqueue-single-wake": Scenario(5000, partial(enqueue_single, woken=True)),
    "enqueue-single-async": Scenario(10_000, partial(enqueue_single, asynchronous=True)),
    "latency": Scenario(200, latency),
    "io": Scenario(20_000, io),
    "lanes": Scenario(60_000, lanes),
    "bounds": Scenario(3000, bounds),
    "memory": Scenario(200_000, memory),
    "scale": Scenario(1_000_000, scale),
    "pinned": Scenario(20_000, pinned, own_database=True, lasts=True),
    "storm": Scenario(10_000, storm, lasts=True),
}


def measure(
    settings: Settings, name: str, *, jobs: int | None = None, seconds: float | None = None, limits: bool = False, say: Say
) -> Result:
    """Run one scenario once.

    Args:
        settings: say where; schema, or database, is the benchmark's own.
        name: a key of `SCENARIOS`.
        jobs: how many (default: the scenario's own number).
        seconds: how long, only for a scenario that lasts (default: its own).
        limits: whether a limit and a rate stand on everything meanwhile, neither of which is reached.
        say: told what goes on.

    Raises:
        SettingsError: no database is set.
        JobwellError: something went wrong that would make the figures wrong.
    """
    scenario = SCENARIOS[name]
    more = {} if seconds is None else {"seconds": seconds}
    with open_bench(settings, say, own_database=scenario.own_database) as bench:
        if limits:
            bench.limit()
        result = scenario.play(bench, jobs or scenario.jobs, **more)
        result.server = server(bench)
    return result


def server(bench: Bench) -> str:
    """The server in words."""
    version = bench.conn.info.server_version
    return f"PostgreSQL {version // 10000}.{version % 10000}"

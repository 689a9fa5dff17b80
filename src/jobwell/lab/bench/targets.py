"""What is to be reached on two cores, database included. The only place for these numbers; docs/benchmarks.md explains them.

Ratios are of one run and hold on any machine; times, CPU and memory are those of a machine at rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A bound for one figure.

    Attributes:
        figure: a name of `result.FIGURES`.
        bound: in the figure's unit.
        least: whether the figure must reach the bound; otherwise it must not exceed it.
        source: what the bound is about, in words.
    """

    figure: str
    bound: float
    least: bool
    source: str

    @property
    def text(self) -> str:
        """As it is shown."""
        return f"{'≥' if self.least else '≤'} {self.bound:g}"

    def met(self, value: float) -> bool:
        """Whether a value reaches it."""
        return value >= self.bound if self.least else value <= self.bound


def _at_least(figure: str, bound: float, source: str) -> Target:
    return Target(figure, bound, least=True, source=source)


def _at_most(figure: str, bound: float, source: str) -> Target:
    return Target(figure, bound, least=False, source=source)


TARGETS: Mapping[str, tuple[Target, ...]] = {
    "drain": (
        _at_least("ratio", 0.6, "of the bare claim+finish loop"),
        _at_most("worker_cpu_us", 20, "a no-op job"),
        _at_most("server_cpu_us", 20, "a no-op job"),
    ),
    "enqueue-bulk": (_at_least("ratio", 0.6, "of a bare COPY of the same rows"),),
    "enqueue-bulk-dedup": (_at_least("ratio", 0.6, "of the same without dedup, in the same run"),),
    "enqueue-single": (_at_least("ratio", 0.8, "of a bare single-row INSERT commit"),),
    "latency": (
        _at_most("p50_ms", 3, "from the call of enqueue to the first line of the task"),
        _at_most("p99_ms", 5, "from the call of enqueue to the first line of the task"),
    ),
    "io": (_at_least("ratio", 0.95, "of slots divided by the length of a job"),),
    "lanes": (_at_least("ratio", 0.8, "of the plain drain in the same run"),),
    "bounds": (
        _at_least("limit_used", 0.95, "of the places, from the first start to the last finish"),
        _at_most("limit_most", 20, "at any moment"),
        _at_least("rate_used", 0.95, "of the starts, from the first to the last"),
        _at_most("rate_most", 200, "in any second"),
    ),
    "memory": (
        _at_most("rss_mb", 60, "resident, at the peak"),
        _at_most("growth_mb", 2, "between the medians of the first and the last quarter: flat"),
    ),
    "scale": (
        _at_most("claim_p99_ms", 20, "at 100 jobs a claim"),
        _at_least("ratio", 0.8, "of the rate on an empty table with as many tenants"),
    ),
    "pinned": (
        _at_least("ratio", 0.8, "of the rate before the snapshot, at its end"),
        _at_least("lowest_ratio", 0.5, "of the rate before the snapshot, in the worst window: slower by a factor of two at most"),
        _at_most("recovery_s", 120, "from the release to nine tenths of the rate before, without help"),
    ),
    "storm": (_at_least("fewer_calls", 10, "calls during the outage without a breaker, for each with one"),),
}

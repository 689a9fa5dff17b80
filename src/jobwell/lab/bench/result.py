"""What runs found, and what that is worth when it is put together."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobwell.lab.bench.targets import TARGETS, Target

Figure = float | list[float] | None


@dataclass(frozen=True)
class Label:
    """How a figure is shown to people: in which words, and with how many digits after the point."""

    text: str
    digits: int


FIGURES: Mapping[str, Label] = {
    "jobs_per_s": Label("jobs a second", 0),
    "floor_per_s": Label("bare SQL beside it, a second", 0),
    "ideal_per_s": Label("ideal, a second", 0),
    "bare_per_s": Label("a bare loop with the same slots, a second", 0),
    "unkeyed_per_s": Label("without dedup, jobs a second", 0),
    "suppressed_per_s": Label("that are there already, a second", 0),
    "plain_per_s": Label("plain drain, a second", 0),
    "empty_per_s": Label("empty table, same tenants, jobs a second", 0),
    "one_tenant_per_s": Label("empty table, one tenant, jobs a second", 0),
    "start_per_s": Label("before the snapshot, jobs a second", 0),
    "recovered_per_s": Label("after its release, jobs a second", 0),
    "ratio": Label("ratio", 3),
    "bare_ratio": Label("ratio to the bare loop", 3),
    "one_tenant_ratio": Label("ratio to one tenant", 3),
    "lowest_ratio": Label("lowest ratio of a window", 3),
    "windows_per_s": Label("windows, jobs a second", 0),
    "limit_used": Label("used of the limit", 3),
    "limit_most": Label("most jobs at once, of 20", 0),
    "rate_used": Label("used of the rate", 3),
    "rate_most": Label("most starts in any second, of 200", 0),
    "p50_ms": Label("p50, ms", 3),
    "p95_ms": Label("p95, ms", 3),
    "p99_ms": Label("p99, ms", 3),
    "floor_p50_ms": Label("bare SQL p50, ms", 3),
    "floor_p99_ms": Label("bare SQL p99, ms", 3),
    "claim_p50_ms": Label("claim p50, ms", 2),
    "claim_p99_ms": Label("claim p99, ms", 2),
    "start_claim_p99_ms": Label("claim p99 before the snapshot, ms", 2),
    "claims": Label("claims measured", 0),
    "dead_rows": Label("dead rows", 0),
    "table_mb": Label("table with its indexes, MB", 1),
    "recovery_s": Label("recovery after the release, s", 1),
    "seconds": Label("snapshot held, s", 0),
    "outage_s": Label("the dependency is down for, s", 0),
    "calls": Label("calls in all", 0),
    "plain_calls": Label("calls in all, without a breaker", 0),
    "refused": Label("calls during the outage", 0),
    "plain_refused": Label("calls during the outage, without", 0),
    "fewer_calls": Label("times fewer calls during the outage", 1),
    "calls_per_s": Label("calls a second during the outage", 2),
    "plain_calls_per_s": Label("calls a second during the outage, without", 2),
    "peak_calls_per_s": Label("most calls in a second of the outage", 0),
    "plain_peak_calls_per_s": Label("most calls in a second of the outage, without", 0),
    "attempts": Label("attempts spent", 0),
    "plain_attempts": Label("attempts spent, without", 0),
    "back_s": Label("from the end of the outage to the last job, s", 1),
    "plain_back_s": Label("from the end of the outage to the last job, without, s", 1),
    "fill_s": Label("filling the tables, s", 0),
    "start_worker_cpu_us": Label("worker CPU a job before the snapshot, µs", 1),
    "start_server_cpu_us": Label("server CPU a job before the snapshot, µs", 1),
    "plain_server_cpu_us": Label("server CPU a job of the plain drain, µs", 1),
    "worker_cpu_us": Label("worker CPU a job, µs", 1),
    "server_cpu_us": Label("server CPU a job, µs", 1),
    "idle_mb": Label("worker idle, MB", 1),
    "first_quarter_mb": Label("worker in the first quarter, MB", 1),
    "last_quarter_mb": Label("worker in the last quarter, MB", 1),
    "growth_mb": Label("growth from first to last quarter, MB", 1),
    "rss_mb": Label("worker's peak, MB", 1),
    "samples": Label("samples of memory", 0),
}


@dataclass(kw_only=True)
class Result:
    """What one run of one scenario found.

    Attributes:
        figures: by names of `FIGURES`; None where a figure cannot be had here (the server's CPU on another host).
    """

    scenario: str
    jobs: int
    figures: dict[str, Figure]
    server: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON; figures rounded to what they are worth."""
        return {
            "scenario": self.scenario,
            "jobs": self.jobs,
            "server": self.server,
            **{k: _round(v) for k, v in self.figures.items()},
        }


def percentiles(seconds: Sequence[float], prefix: str = "", *, whole: bool = False) -> dict[str, Figure]:
    """p50 and p99 in milliseconds.

    Args:
        seconds: what was measured; fewer than two give None.
        prefix: of the figures' names.
        whole: p95, too.
    """
    names = {"p50_ms": 49, "p99_ms": 98} | ({"p95_ms": 94} if whole else {})
    if len(seconds) < 2:
        return {f"{prefix}{name}": None for name in names}
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {f"{prefix}{name}": cuts[at] * 1000 for name, at in names.items()}


def summary(runs: Sequence[Result]) -> dict[str, dict[str, float]]:
    """Median, lowest and highest of each figure that is one number."""
    found = {}
    for name in runs[0].figures:
        values = [value for run in runs if isinstance(value := run.figures[name], int | float)]
        if values:
            spread = {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
            found[name] = {key: round(value, 3) for key, value in spread.items()}
    return found


def report(runs: Sequence[Result]) -> dict[str, Any]:
    """Everything about runs of one scenario, in the one form of `-o json`: targets are judged by the medians."""
    found = summary(runs)
    judged = {}
    for target in TARGETS.get(runs[0].scenario, ()):
        value = found.get(target.figure, {}).get("median")
        judged[target.figure] = {
            "target": target.text,
            "met": None if value is None else target.met(value),
            "from": target.source,
        }
    first = runs[0].as_dict()
    return {
        **{name: first[name] for name in ("scenario", "jobs", "server")},
        "runs": [run.as_dict() for run in runs], "summary": found, "targets": judged,
    }  # fmt: skip


def rows(runs: Sequence[Result]) -> list[dict[str, str]]:
    """The same as lines for people: figure, value, and where there is one the target with ✓ or ✗."""
    found = summary(runs)
    targets: dict[str, Target] = {target.figure: target for target in TARGETS.get(runs[0].scenario, ())}
    lines = []
    for name, label in FIGURES.items():
        if name not in runs[0].figures:
            continue
        line = {"figure": label.text}
        if name in found:
            line |= {key: _shown(value, label) for key, value in found[name].items()}
        elif isinstance(values := runs[-1].figures[name], list):
            line["median"] = " ".join(_shown(value, label) for value in values)
        else:
            line["median"] = "not measured"
        if name in targets:
            line["target"] = targets[name].text
            line["met"] = ("✓" if targets[name].met(found[name]["median"]) else "✗") if name in found else "?"
        lines.append(line)
    return lines


def _shown(value: float, label: Label) -> str:
    return f"{value:,.{label.digits}f}"


def _round(value: Figure) -> Figure:
    if isinstance(value, list):
        return [round(each, 3) for each in value]
    return round(value, 3) if isinstance(value, float) else value

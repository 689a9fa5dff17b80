"""Runs put together: medians with their spread, and targets judged by the medians."""

from pathlib import Path

import pytest

from jobwell.cli.bench import SCENARIOS as NAMES
from jobwell.lab.bench.result import FIGURES, Figure, Result, percentiles, report, rows, summary
from jobwell.lab.bench.scenarios import SCENARIOS
from jobwell.lab.bench.targets import TARGETS


def drains(*ratios: float, cpu: float | None = None) -> list[Result]:
    return [
        Result(scenario="drain", jobs=10, server="PostgreSQL 18.6", figures={"ratio": ratio, "server_cpu_us": cpu})
        for ratio in ratios
    ]


def test_the_command_line_offers_what_there_is() -> None:
    assert list(NAMES) == list(SCENARIOS)


def test_targets_are_of_scenarios_and_figures_that_exist() -> None:
    assert set(TARGETS) <= set(SCENARIOS)
    assert {target.figure for targets in TARGETS.values() for target in targets} <= set(FIGURES)


def test_a_summary_is_median_lowest_highest() -> None:
    assert summary(drains(0.7, 0.5, 0.65)) == {"ratio": {"median": 0.65, "lowest": 0.5, "highest": 0.7}}
    assert summary(drains(0.61239))["ratio"] == {"median": 0.612, "lowest": 0.612, "highest": 0.612}


def test_what_is_a_list_has_no_median() -> None:
    runs = [Result(scenario="pinned", jobs=10, figures={"windows_per_s": [1.0, 2.0]})]
    assert summary(runs) == {}
    assert rows(runs) == [{"figure": FIGURES["windows_per_s"].text, "median": "1 2"}]


@pytest.mark.parametrize(
    ("ratios", "met"), [((0.7, 0.5, 0.65), True), ((0.7, 0.5, 0.599), False), ((0.6,), True), ((0.599_96,), True)]
)
def test_a_target_is_judged_by_the_median(ratios: tuple[float, ...], met: bool) -> None:
    told = report(drains(*ratios, cpu=19.0))
    assert told["targets"]["ratio"] == {"target": "≥ 0.6", "met": met, "from": "of the bare claim+finish loop"}
    assert told["targets"]["server_cpu_us"]["met"] is True
    assert [run["ratio"] for run in told["runs"]] == [round(ratio, 3) for ratio in ratios]
    line = next(line for line in rows(drains(*ratios)) if line["figure"] == "ratio")
    assert (line["target"], line["met"]) == ("≥ 0.6", "✓" if met else "✗")


def test_what_must_not_be_exceeded() -> None:
    assert report(drains(0.7, cpu=20.0))["targets"]["server_cpu_us"]["met"] is True
    assert report(drains(0.7, cpu=20.1))["targets"]["server_cpu_us"]["met"] is False


def test_a_figure_that_was_not_measured_is_neither() -> None:
    told = report(drains(0.7, 0.8))
    assert told["targets"]["server_cpu_us"]["met"] is None
    assert told["targets"]["worker_cpu_us"]["met"] is None
    assert "server_cpu_us" not in told["summary"]
    line = next(line for line in rows(drains(0.7)) if line["figure"] == FIGURES["server_cpu_us"].text)
    assert (line["median"], line["met"]) == ("not measured", "?")


@pytest.mark.parametrize(
    ("seconds", "found"),
    [([], (None, None)), ([0.1], (None, None)), ([0.002] * 5, (2.0, 2.0)), ([n / 1000 for n in range(101)], (50.0, 99.0))],
)
def test_percentiles(seconds: list[float], found: tuple[Figure, Figure]) -> None:
    told = percentiles(seconds, "claim_")
    assert told == {"claim_p50_ms": pytest.approx(found[0]), "claim_p99_ms": pytest.approx(found[1])}
    assert set(percentiles(seconds, whole=True)) == {"p50_ms", "p95_ms", "p99_ms"}


def test_the_page_tells_the_targets() -> None:
    page = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for name, targets in TARGETS.items():
        line = page[page.index("## Targets") :].partition(f"| `{name}` |")[2].partition("\n")[0]
        assert [target.text for target in targets if target.text not in line] == [], name

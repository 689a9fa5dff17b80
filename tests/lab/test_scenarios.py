"""Each scenario at a tiny size on a real server: what comes out, and that nothing stays. Not how fast."""

import itertools

import pytest

from jobwell.lab.bench import pinned
from jobwell.lab.bench.result import FIGURES, Result, report
from jobwell.lab.bench.scenarios import SCENARIOS, measure
from jobwell.lab.bench.targets import TARGETS
from jobwell.settings import Settings
from tests.lab.conftest import Left

TINY = {
    "drain": 300, "drain-2": 300, "enqueue-bulk": 300, "enqueue-bulk-dedup": 300, "enqueue-single": 210, "enqueue-single-wake": 120,
    "enqueue-single-async": 120, "latency": 10, "io": 200, "lanes": 300, "bounds": 200, "memory": 400, "scale": 400, "pinned": 200,
    "storm": 150,
}  # fmt: skip
HOST_ONLY = {
    "server_cpu_us",
    "start_server_cpu_us",
    "plain_server_cpu_us",
    "rss_mb",
}  # known only where the server, or /proc, is on this host


def numbers(result: Result) -> dict[str, float]:
    """The figures that are one number; all but those of the host must be there, and none is negative."""
    found = {name: value for name, value in result.figures.items() if isinstance(value, int | float)}
    missing = {name for name, value in result.figures.items() if value is None}
    assert missing <= HOST_ONLY
    signed = {"growth_mb"}
    assert [name for name, value in found.items() if value < 0 and name not in signed] == []
    return found


def play(given: Settings, name: str, seconds: float | None = None) -> tuple[Result, list[str]]:
    """Run it, and check what is so for each."""
    said: list[str] = []
    result = measure(given, name, jobs=TINY[name], seconds=seconds, say=said.append)
    assert (result.scenario, result.jobs) == (name, TINY[name])
    assert result.server.startswith("PostgreSQL ")
    assert set(result.figures) <= set(FIGURES)
    assert set(report([result])["targets"]) == {target.figure for target in TARGETS.get(name, ())} <= set(result.figures)
    assert said
    reference = {"floor_per_s", "ideal_per_s", "empty_per_s", "start_per_s", "plain_per_s", "unkeyed_per_s"} & set(result.figures)
    for base in reference:
        ours, theirs = result.figures["jobs_per_s"], result.figures[base]
        assert isinstance(ours, float)
        assert isinstance(theirs, float)
        assert result.figures["ratio"] == pytest.approx(ours / theirs)
    return result, said


def test_there_is_a_tiny_size_for_each() -> None:
    assert list(TINY) == list(SCENARIOS)


@pytest.mark.parametrize("name", [name for name in TINY if name not in ("io", "memory", "scale", "pinned", "storm")])
def test_a_scenario(given: Settings, left: Left, name: str) -> None:
    result, _ = play(given, name)
    numbers(result)
    assert left() == []


def test_io_is_held_against_what_its_slots_could_do(given: Settings, left: Left) -> None:
    result, _ = play(given, "io")
    found = numbers(result)
    assert found["ideal_per_s"] == 2000
    assert 0 < found["ratio"] <= 1
    assert left() == []


@pytest.mark.long
@pytest.mark.timeout(1100)
def test_a_worker_does_not_grow_over_a_million_jobs(given: Settings, left: Left) -> None:
    """At most 60 MB resident, from beginning to end; what a worker keeps of a job goes with it."""
    found = numbers(measure(given, "memory", jobs=1_000_000, seconds=None, say=print))
    assert found["last_quarter_mb"] <= 60
    assert found["rss_mb"] <= 60
    assert found["growth_mb"] < 5
    assert left() == []


def test_memory_is_sampled_from_beginning_to_end(given: Settings, left: Left) -> None:
    result, _ = play(given, "memory")
    found = numbers(result)
    assert found["growth_mb"] == pytest.approx(found["last_quarter_mb"] - found["first_quarter_mb"])
    assert found["samples"] >= 8
    assert found["rss_mb"] >= found["last_quarter_mb"] > 10
    assert left() == []


def test_scale_measures_real_claims(given: Settings, left: Left) -> None:
    result, said = play(given, "scale")
    found = numbers(result)
    assert found["claims"] == 2  # a quarter of 400, by 50
    assert found["claim_p50_ms"] <= found["claim_p99_ms"]
    assert "filling: 800 finished, 400 scheduled, 400 ready" in said
    assert left() == []


def test_pinned(given: Settings, left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "MOST_RECOVERY", 1.0)  # noise on a busy machine is not waited for
    result, said = play(given, "pinned", seconds=1.2)
    found = numbers(result)
    windows = result.figures["windows_per_s"]
    assert isinstance(windows, list)
    assert len(windows) == pinned.WINDOWS
    assert min(windows) > 0
    assert found["lowest_ratio"] == pytest.approx(min(windows) / found["start_per_s"])
    assert found["seconds"] == 1.2
    assert found["claims"] > 0
    order = ["before the snapshot", "after 0 s", "after 1 s", "released"]
    at = [next(number for number, line in enumerate(said) if line.startswith(words)) for words in order]
    assert all(one < other for one, other in itertools.pairwise(at))
    assert left() == []


def test_storm(given: Settings, left: Left) -> None:
    result, _ = play(given, "storm", seconds=1)
    found = numbers(result)
    assert found["outage_s"] == 1
    assert found["plain_refused"] >= 50
    assert found["fewer_calls"] == pytest.approx(found["plain_refused"] / found["refused"])
    assert found["attempts"] <= found["calls"]
    assert found["plain_attempts"] == found["plain_calls"]
    assert left() == []

"""The network between workers and PostgreSQL: cut, healed, slow. Each worker on a host of its own."""

import time

import pytest

from tests.hosts.helpers import Site, stays
from tests.hosts.network import Host, Network, impossible_cables
from tests.waiting import pause, until

LEASE = 3.0


def cut_one(site: Site, network: Network, *, lease: float, seconds: float) -> None:
    """One worker of two is cut off with its jobs."""
    here, there = network.host(), network.host()
    producer = site.begin([here, there], lease=f"{lease}s", slots="4")
    for _ in range(8):
        producer.put(seconds)
    until(lambda: site.marks.count("begin") == 8, what="both are full")
    before, child = site.ids(), site.workers.children(1)[0]
    network.cut(there)
    began = time.monotonic()
    until(lambda: not child.is_running(), timeout=lease * 2, what="the cut worker ends by itself")
    until(lambda: site.outcomes()["lost"] == 4, timeout=began + 2 * lease - time.monotonic(), what="its jobs are taken back")
    assert "the lease could not be renewed" in site.workers.said(1)
    until(lambda: site.finished() == 8, timeout=2 * seconds + 5, what="the other one does them")
    assert site.workers.started[1].poll() is None, "its supervisor lives, and tries"
    network.heal(there)
    until(lambda: site.live() == 2, timeout=20, what="its successor comes back by itself")
    new = (site.ids() - before).pop()
    for _ in range(40):
        producer.put(0.2)
    verdict = site.judge(producer)
    assert verdict.ok, verdict.findings
    assert verdict.outcomes == {"lost": 4, "succeeded": 4}, "the first successes leave no row in the log"
    assert any(mark.worker == new for mark in site.marks.all()), "and it takes work"


def test_a_cut_worker_stops_by_itself_and_the_other_does_its_jobs_once(site: Site, network: Network) -> None:
    cut_one(site, network, lease=LEASE, seconds=4.0)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_same_with_the_usual_lease(site: Site, network: Network) -> None:
    cut_one(site, network, lease=10.0, seconds=15.0)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_cut_that_is_shorter_than_the_lease_repeats_nothing(site: Site, network: Network) -> None:
    here, there = network.host(), network.host()
    producer = site.begin([here, there], lease="10s", slots="4")
    for _ in range(8):
        producer.put(6.0)
    until(lambda: site.marks.count("begin") == 8, what="both are full")
    before = site.ids()
    for host in (here, there):
        network.cut(host)
    pause(4.0)
    for host in (here, there):
        network.heal(host)
    verdict = site.judge(producer)
    assert verdict.ok, verdict.findings
    assert (verdict.calls, verdict.outcomes) == (8, {})
    assert site.ids() == before


@pytest.mark.long
@pytest.mark.timeout(300)
def test_after_a_cut_of_all_nobody_is_declared_dead_before_a_full_lease(site: Site, network: Network) -> None:
    """The one that could not come back in time must not lose what it runs to one that came back a moment earlier."""
    lease = 6.0
    here, there = network.host(), network.host()
    producer = site.begin([here, there], lease=f"{lease}s", slots="3")
    for _ in range(6):
        producer.put(60.0)
    until(lambda: site.marks.count("begin") == 6, what="both are full")
    gone = site.ids()
    with site.server.connect() as conn:
        other = conn.execute("select id from workers where pid = %s", [site.workers.children(1)[0].pid]).fetchone()
    assert other is not None
    network.cut(here)
    network.cut(there)
    site.workers.kill(1)  # nobody is left who could tell of its end
    assert stays(lambda: site.outcomes() == {}, lease * 1.5), "while nobody can reach the server nothing is decided"
    network.heal(here)
    until(lambda: site.ids() - gone, timeout=30, what="the first one has come back")
    back = time.monotonic()

    def taken() -> bool:
        return site.server.one(f"select count(*) from attempts where worker = '{other[0]}' and outcome = 'lost'") == 3

    until(taken, timeout=lease * 3, what="then the jobs of the one that is gone are taken back")
    assert time.monotonic() - back > lease * 0.9, "and not before a full lease"


def slow(site: Site, hosts: list[Host], *, jobs: int) -> None:
    """Workers behind cables that are slow and lose packets."""
    producer = site.begin(hosts, lease="10s", slots="20")
    for _ in range(jobs):
        producer.put(0.02)
    verdict = site.judge(producer)
    assert verdict.ok, verdict.findings
    assert verdict.states == {"succeeded": jobs}
    assert verdict.calls == jobs, "no lease was lost, and no job ran twice"
    assert len({mark.worker for mark in site.marks.all()}) == len(hosts), "all of them worked"


needs_cables = pytest.mark.skipif(bool(impossible_cables()), reason=impossible_cables() or "none")


@needs_cables
def test_over_a_slow_cable_that_loses_packets_every_job_ends_once(site: Site, network: Network) -> None:
    slow(site, [network.host(delay=0.02, loss=0.05)], jobs=60)
    assert network.cables[0].dropped > 0


@needs_cables
@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_same_with_two_slower_ones(site: Site, network: Network) -> None:
    slow(site, [network.host(delay=0.04, loss=0.05), network.host(delay=0.04, loss=0.05)], jobs=1000)  # 80 ms there and back
    assert min(cable.dropped for cable in network.cables) > 20

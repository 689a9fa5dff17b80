"""The primary goes, and its standby is promoted while jobs flow."""

from pathlib import Path

import pytest

from tests.hosts.helpers import Producer, Site, Workers, stays
from tests.hosts.network import Network
from tests.hosts.servers import Postgres
from tests.outage.helpers import Proxy
from tests.waiting import pause, until


def test_a_promoted_standby_has_all_that_was_acknowledged_and_workers_find_it(pair: tuple[Site, Postgres]) -> None:
    site, standby = pair
    producer = site.begin([None, None], lease="20s")
    workers = site.ids()
    producer.flow(seconds=0.3, every=0.02)
    until(lambda: site.finished() > 30, what="jobs flow")
    site.server.kill()
    until(lambda: producer.errors, timeout=20, what="the producer is told")
    standby.promote()
    site.server = standby
    known = producer.committed
    until(lambda: producer.committed > known + 30, timeout=20, what="the producer goes on by itself")
    until(lambda: site.marks.count("effect") > known, timeout=20, what="and so do the workers")
    producer.stop()
    verdict = site.judge(producer)
    assert verdict.ok, verdict.findings
    assert verdict.jobs >= producer.committed, "nothing that was acknowledged is lost"
    assert set(verdict.outcomes) <= {"succeeded", "released"}, "no lease was lost, so nothing ran twice"
    assert site.ids() == workers, "these are the workers of before, without a restart"


def fail_over(site: Site, standby: Postgres, *, pause_before: float = 0.0) -> None:
    """The primary is killed; the standby takes over after a while."""
    site.server.kill()
    pause(pause_before)
    standby.promote()
    site.server = standby


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_fail_over_that_takes_longer_than_the_lease_costs_attempts_and_nothing_else(pair: tuple[Site, Postgres]) -> None:
    """Until the end the URL leads to a server that is still read-only."""
    site, standby = pair
    producer = site.begin([None, None], lease="4s")
    producer.flow(seconds=1.0, every=0.05)
    until(lambda: site.finished() > 20, what="jobs flow")
    before = site.ids()
    fail_over(site, standby, pause_before=9.0)
    until(lambda: site.live() == 2, timeout=30, what="workers come back by themselves")
    producer.stop()
    assert not site.ids() & before, "others: those of before have stopped their jobs and ended"
    verdict = site.judge(producer)
    assert verdict.ok, verdict.findings
    assert verdict.outcomes["lost"] > 0
    assert all(process.poll() is None for process in site.workers.started)
    assert any("session is read-only" in site.workers.said(number) for number in (0, 1)), "and said why"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_primary_whose_host_is_gone_without_a_word(folder: Path, network: Network, workers: Workers) -> None:
    """Nothing refuses: each attempt to reach it has to be given up, and the lease must outlast that."""
    first, second, third = (network.host() for _ in range(3))
    primary = Postgres(folder / "one", first.address, 5432, first.space)
    standby = Postgres(folder / "two", second.address, 5432, second.space)
    primary.make()
    primary.start()
    standby.copy(primary)
    standby.start()
    primary.wait_for_standby()
    site = Site([primary, standby], workers.marks, workers)
    try:
        producer = site.begin([third], lease="10s")
        for _ in range(10):
            producer.put(12.0)
        until(lambda: site.marks.count("begin") == 10, what="they run")
        before = site.ids()
        network.cut(first)
        standby.promote()
        site.server = standby
        until(lambda: site.finished() == 10, timeout=60, what="their outcomes come to the new primary")
        assert site.outcomes() == {}, "the lease was kept: they ran once"
        assert site.ids() == before
        late = Producer(standby.own_url)
        for _ in range(20):
            late.put(0.1)
        producer.puts |= late.puts
        verdict = site.judge(producer)
        assert verdict.ok, verdict.findings
        late.close()
    finally:
        site.close()
        for server in (primary, standby):
            server.kill()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_worker_waits_for_a_server_that_cannot_be_written_yet(pair: tuple[Site, Postgres]) -> None:
    site, standby = pair
    producer = site.begin([])
    producer.put(0.1)
    site.workers.start(standby.url)
    until(lambda: "the start waits for the store: this server cannot be written" in site.workers.said(0), what="it says so")
    child = site.workers.children(0)[0]
    mine = Producer(standby.url)
    mine.put(0.1)
    assert "cannot be written: cannot execute" in mine.errors[0].message
    assert mine.committed == 0, "it is known that nothing was stored"
    fail_over(site, standby)
    until(lambda: site.finished() == 1, what="the job is done")
    assert child.is_running(), "by the process that waited"
    mine.put(0.1)
    producer.puts |= mine.puts
    verdict = site.judge(producer)
    assert verdict.ok, verdict.findings
    mine.close()


def test_a_producer_leaves_a_server_that_is_not_the_primary_any_more(pair: tuple[Site, Postgres]) -> None:
    """A name, or a proxy, that led to it leads to another one now: the old connections must not be used again."""
    site, standby = pair
    producer = site.begin([])
    proxy = Proxy(f"{standby.url}?sslmode=disable")
    behind = Producer(proxy.url)
    behind.put(0.0)
    assert [error.message for error in behind.errors if "cannot be written" in error.message]
    proxy.lead_to(site.server.address, site.server.port)
    behind.put(0.0)
    assert behind.committed == 1
    assert len(behind.errors) == 1
    behind.close()
    producer.close()
    proxy.close()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_standby_that_is_away_holds_up_commits_and_costs_no_lease(pair: tuple[Site, Postgres]) -> None:
    site, standby = pair
    producer = site.begin([None], lease="3s", statement_timeout="2s")
    producer.put(1.0)
    until(lambda: site.marks.count("begin") == 1, what="it runs")
    before = site.ids()
    standby.kill()
    waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'jobwell finish'"
    until(lambda: site.server.one(waiting) == 1, what="its outcome waits for the standby")
    assert stays(lambda: site.ids() == before, 4.5), "for longer than the lease, and the worker has it still"
    producer.put(0.1)
    assert [error.unsure for error in producer.errors] == [True], "who enqueues is told that it is not known"
    standby.start()
    verdict = site.judge(producer)
    assert verdict.ok, verdict.findings
    assert verdict.calls == verdict.jobs == 2, "PostgreSQL had committed both, and each ran once"
    assert site.ids() == before


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_an_asynchronous_standby_has_not_received_is_lost_and_nothing_else(pair: tuple[Site, Postgres]) -> None:
    """PostgreSQL's loss, as the pages say it; jobs that were done are done again, and workers go on."""
    site, standby = pair
    producer = site.begin([None, None], lease="4s", slots="5")
    site.server.set("synchronous_standby_names", "")
    known = [producer.put(1.5) for _ in range(10)]
    until(lambda: site.marks.count("begin") == 10, what="they run")
    position = site.server.one("select pg_current_wal_lsn()")
    until(lambda: standby.one(f"select pg_last_wal_replay_lsn() >= '{position}'"), what="the standby has them running")
    standby.set("primary_conninfo", "host=127.0.0.1 port=1")  # it lags from here on
    until(lambda: standby.one("select count(*) from pg_stat_wal_receiver") == 0)
    late = [producer.put(0.1) for _ in range(20)]
    assert producer.committed == 30
    until(lambda: site.finished() == 30, what="all of them are done")
    fail_over(site, standby)
    until(lambda: site.left() == 0, timeout=60, what="what the standby has is done")
    assert {row[0] for row in site.rows("select id from finished")} == set(known), "those that it has not are gone"
    # Their workers live and do not run them any more: they hand them back, uncounted, or lose them with their lease.
    assert site.outcomes()["released"] + site.outcomes()["lost"] == 10, "that they were done it does not know"
    done = [mark.job for mark in site.marks.all() if mark.what == "effect"]
    assert sorted(done) == sorted(known + known + late)
    fresh = producer.put(0.1)
    until(lambda: fresh in {row[0] for row in site.rows("select id from finished")}, what="and the workers go on")

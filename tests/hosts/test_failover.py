"""The primary goes, and its standby is promoted while jobs flow."""

import time

import pytest

from tests.hosts.helpers import Marks, Site, Workers
from tests.hosts.network import Network
from tests.hosts.servers import Postgres
from tests.waiting import pause, until


def test_a_promoted_standby_has_all_that_was_acknowledged_and_workers_find_it(pair: tuple[Site, Postgres]) -> None:
    site, standby = pair
    producer = site.begin([None, None], lease="10s")
    workers, before = site.ids(), site.finished()
    producer.flow(seconds=0.3, every=0.02)
    until(lambda: site.finished() > before + 30, what="jobs flow")
    site.server.kill()
    gone = time.monotonic()
    until(lambda: producer.errors, timeout=20, what="the producer is told")
    standby.promote()
    site.server = standby
    known = producer.committed
    until(lambda: producer.committed > known + 30, timeout=20, what="the producer goes on by itself")
    until(lambda: site.marks.count("effect") > known, timeout=20, what="and so do the workers")
    back = time.monotonic() - gone
    producer.stop()
    verdict = site.judge(producer)
    assert verdict.ok, verdict.findings
    assert verdict.jobs >= producer.committed, "nothing that was acknowledged is lost"
    assert set(verdict.outcomes) <= {"succeeded", "released"}, "no lease was lost, so nothing ran twice"
    assert site.ids() == workers, "these are the workers of before, without a restart"
    assert back < 20

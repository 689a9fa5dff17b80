"""The same seed gives the same faults and the same mix of jobs."""

from random import Random

from jobwell.lab.chaos import mix
from jobwell.lab.chaos.plan import KINDS, LEASE, plan
from jobwell.lab.chaos.tasks import app


def test_a_seed_gives_its_plan_and_another_seed_another() -> None:
    assert plan(Random(7), 60) == plan(Random(7), 60)
    assert plan(Random(7), 60) != plan(Random(8), 60)


def test_each_kind_happens_in_a_short_run_and_as_often_as_it_should_in_a_long_one() -> None:
    assert {fault.kind for fault in plan(Random(1), 10)} == set(KINDS)
    long = plan(Random(1), 600)
    for kind, (a_minute, shortest, longest) in KINDS.items():
        of_kind = [fault for fault in long if fault.kind == kind]
        assert len(of_kind) == round(a_minute * 10)
        assert all(shortest <= fault.seconds <= longest and 1 <= fault.at <= 600 for fault in of_kind)
    assert long == sorted(long)
    assert any(fault.seconds > LEASE for fault in long if fault.kind == "worker long stop")


def test_the_mix_has_every_task() -> None:
    random = Random(7)
    drawn = [mix.draw(random) for _ in range(20_000)]
    assert {job.task for job in drawn} == {spec.name for spec in app.catalog}
    again = Random(7)
    assert [mix.draw(again).task for _ in range(500)] == [job.task for job in drawn[:500]]

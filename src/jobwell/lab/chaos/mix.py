"""Which jobs are enqueued: drawn, so that a seed gives the same mix."""

import time
from collections.abc import Callable
from random import Random

from jobwell.core.job import NewJob
from jobwell.lab.chaos import tasks
from jobwell.lab.chaos.plan import LEASE

Make = Callable[[Random], NewJob]


def _quick(random: Random) -> NewJob:
    return tasks.quick.job(random.uniform(0, 0.02))


def _later(random: Random) -> NewJob:
    return tasks.quick.using(run_after=random.uniform(0.05, 3.0)).job(random.uniform(0, 0.02))


def _slow(random: Random) -> NewJob:
    return tasks.quick.job(random.uniform(0.3, LEASE * 2))


def _rented(random: Random) -> NewJob:
    ballast = "x" * random.choice([0] * 20 + [30_000])
    return tasks.rented.job(random.uniform(0, 0.02), f"t{min(int(random.expovariate(0.5)), 9)}", ballast)


def _flaky(random: Random) -> NewJob:
    return tasks.flaky.job(random.uniform(0, 0.1), random.choice((1, 1, 2, 9)))


MIX: tuple[tuple[float, Make], ...] = (
    (40, _quick),
    (5, _later),
    (2, _slow),
    (10, lambda random: tasks.urgent.job(random.uniform(0, 0.02))),
    (15, _rented),
    (6, _flaky),
    (1, lambda _: tasks.refused.job()),
    (2, lambda random: tasks.sleepy.job(time.time() + random.uniform(0, 2))),
    (6, lambda random: tasks.locked.job(random.uniform(0, 0.1), random.randrange(30))),
    (8, lambda random: tasks.threaded.job(random.uniform(0, 0.05))),
    (0.7, lambda random: tasks.threaded.job(random.uniform(0.5, LEASE * 2))),
    (2, lambda random: tasks.apart.job(random.uniform(0, 0.03))),
    (0.3, lambda random: tasks.apart.job(random.uniform(0.5, 3))),
    (1, lambda random: tasks.apart_async.job(random.uniform(0, 0.05))),
    (0.03, lambda _: tasks.poison.job()),
    (0.1, lambda _: tasks.poison_apart.job()),
)


def draw(random: Random) -> NewJob:
    """The next job."""
    (make,) = random.choices([make for _, make in MIX], [weight for weight, _ in MIX])
    return make(random)

"""A priority that is changed while jobs wait decides the next claim."""

from jobwell import App
from tests.waiting import auntil
from tests.worker.helpers import Acts, Desk, working


async def test_it_goes_first_from_the_next_claim_on(app: App, acts: Acts, desk: Desk) -> None:
    acts.act.enqueue("wait")
    async with working(app, slots=1):
        await auntil(lambda: acts.under_way == 1)
        jobs = [acts.act.enqueue("ok", n) for n in range(5)]
        assert await jobs[4].areprioritize(90)
        assert await jobs[0].areprioritize(-90, by="olga", why="no hurry")
        acts.open_all()
        await desk.settled()
    await app.aclose()
    assert [ran.n for ran in acts.ran if ran.n is not None][-5:] == [4, 1, 2, 3, 0]
    assert desk.all("select actor, detail ->> 'to' from audit order by id") == [("the application", "90"), ("olga", "-90")]

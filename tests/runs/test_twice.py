"""The same start twice, at once or one after the other; and a preparation that dies at its end."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from jobwell import App, Conflict
from jobwell.runs import Run, RunContext
from jobwell.runs.items import Item
from jobwell.store import runs as store
from jobwell.testing import Testbed
from tests.runs.conftest import Employee, Office, Transfer, check, people

BAD = {"employee_id": "seven"}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few items are several transactions."""
    monkeypatch.setattr("jobwell.runs.shape.BLOCK", 10)


def test_a_second_click_while_the_first_one_reads_is_the_same_run(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    """The other is done before."""
    others: list[Run] = []

    def slow() -> Iterator[Employee]:
        yield from people(25)
        others.append(office.operation.start(Transfer(to="Astana"), items=people(60), key="k"))
        yield from people(35, 26)

    run = office.operation.start(Transfer(to="Astana"), items=slow(), key="k")
    assert run.created
    assert not others[0].created
    assert others[0].id == run.id
    assert run.status().total == 60
    with pytest.raises(Conflict, match="sealed"):
        run.add(people(1, 1000))
    bed.drain()
    assert sorted(office.applied) == list(range(1, 61))
    check(office.app, conn, run.id)


async def test_the_same_of_async_code(office: Office, bed: Testbed) -> None:
    async def slow() -> AsyncIterator[Employee]:
        for one in people(25):
            yield one
        assert not (await office.operation.astart(Transfer(to="Astana"), items=people(60), key="k")).created
        for one in people(35, 26):
            yield one

    run = await office.operation.astart(Transfer(to="Astana"), items=slow(), key="k")
    assert (await run.astatus()).total == 60


def test_a_bad_row_is_not_forgotten_for_a_second_start(office: Office, bed: Testbed) -> None:
    """Which dies: the first one has told of the row already."""

    def dies() -> Iterator[Any]:
        yield from people(15)
        raise ConnectionResetError

    def slow() -> Iterator[Any]:
        yield BAD
        yield from people(25)
        with pytest.raises(ConnectionResetError):
            office.operation.start(Transfer(to="Astana"), items=dies(), key="k")
        yield from people(35, 26)

    run = office.operation.start(Transfer(to="Astana"), items=slow(), key="k")
    card = run.status()
    assert (card.status, card.bad_rows, [one.row for one in run.bad_rows()]) == ("cancelled", 1, [1])
    bed.drain()
    assert not office.applied


def test_an_input_that_is_read_again_counts_its_bad_rows_once(office: Office, bed: Testbed) -> None:
    def breaks() -> Iterator[Any]:
        yield from [BAD, {"department": "Sales"}, *people(15), *people(2)]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        office.operation.start(Transfer(to="Astana"), items=breaks(), key="k", on_bad="skip")
    run = office.operation.start(
        Transfer(to="Astana"), items=[BAD, {"department": "Sales"}, *people(30), BAD], key="k", on_bad="skip"
    )
    assert (run.status().bad_rows, [one.row for one in run.bad_rows()]) == (3, [1, 2, 33])
    assert run.status().total == 30


@pytest.mark.parametrize("plain", [False, True])
def test_a_preparation_that_dies_behind_its_seal_is_over_all_the_same(
    app: App, bed: Testbed, conn: "Connection[Any]", monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")
    reads: list[int] = []

    def find(ctx: RunContext, params: None) -> Iterator[Any]:
        reads.append(1)
        yield BAD
        yield from people(15)

    async def afind(ctx: RunContext, params: None) -> AsyncIterator[Any]:
        for one in find(ctx, params):
            yield one

    mass.prepare(find if plain else afind)

    @mass.stage
    async def touch(ctx: RunContext, item: Item[Employee]) -> None: ...

    end_part, ends = store.end_part, [0]

    def dies(*given: Any) -> Any:
        ends[0] += 1
        if ends[0] == 1:
            raise psycopg.OperationalError("the process is gone")
        yield from end_part(*given)

    monkeypatch.setattr(store, "end_part", dies)
    run = mass.start(on_bad="skip")
    bed.drain(retries=True)
    card = run.status()
    assert (card.status, card["touch"].done, card.bad_rows, len(run.bad_rows())) == ("completed", 15, 1, 1)
    assert (len(reads), [(one.kind, one.state) for one in card.parts]) == (1, [("prepare", "done")])
    check(app, conn, run.id)

"""The work of one job of a stage: which items it has, what has been recorded of them, and what is left at its end."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from jobwell.core.errors import Conflict
from jobwell.core.retry import Retries, RetryRule
from jobwell.core.runs import spans
from jobwell.runs.clerk import Clerk
from jobwell.runs.items import Item
from jobwell.store import runs as store
from jobwell.store.runs import Ended
from jobwell.store.statements import arun, run

if TYPE_CHECKING:
    from jobwell.client.client import Client

GOING = ("queued", "running")


class Work:
    """One job.

    Args:
        client: of the app.
        clerk: of the running loop, in an async stage.
        job, claim: the fence of what is written.
        run_id, stage: of whose items.
        rule: by which items are tried again.

    Attributes:
        items: its open items.
        going: whether the run goes on, as far as is known.
        begun: whether the function was called.
        passed: items that a loop has passed over and that are not recorded yet.
    """

    def __init__(
        self,
        client: "Client",
        clerk: Clerk | None,
        *,
        job: UUID,
        claim: UUID,
        run_id: UUID,
        stage: int,
        rule: RetryRule | Retries,
    ) -> None:
        self._client = client
        self._clerk = clerk
        self._job = job
        self._claim = claim
        self._run = run_id
        self._stage = stage
        self._rule = rule
        self.items: list[Item[Any]] = []
        self.going = True
        self.begun = False
        self.passed: list[Item[Any]] = []
        self._state = "running"
        self._left: dict[int, Item[Any]] = {}  # not recorded, by number
        self._streamed: set[int] = set()  # of a loop that records as it goes, and not passed over yet

    def open(self, rows: Sequence[store.Loaded], items: list[Item[Any]]) -> None:
        """Take the items in; those that cannot be read are marked already."""
        self._left = {item.no: item for item in items}
        self.items = [item for item in items if item.state is None]
        if rows:
            self._told(rows[0].run_state)

    def _told(self, state: str) -> None:
        self._state = state
        self.going = state in GOING

    def expect(self, items: Sequence[Item[Any]]) -> None:
        """A loop that records as it goes begins with these: what it does not come to is not done."""
        self._streamed.update(item.no for item in items)

    def come_to(self, items: Sequence[Item[Any]]) -> None:
        """The loop has come to these: left here, they count as any others."""
        self._streamed.difference_update(item.no for item in items)

    def pass_over(self, items: Sequence[Item[Any]]) -> list[Item[Any]]:
        """The loop has gone on behind these."""
        self.passed += [item for item in items if item.no in self._left]
        return list(self.passed)

    # --- recording -----------------------------------------------------------------------------------------------------------

    async def arecord(self, items: Sequence[Item[Any]]) -> None:
        """Record these as they are marked."""
        assert self._clerk is not None, "a plain function loops over items.each(), an async one by `async for item in items`"
        await self._awrite([self._ended(item) for item in items])

    def record(self, items: Sequence[Item[Any]]) -> None:
        """As `arecord`, in a plain function."""
        self._write([self._ended(item) for item in items])

    async def aclose(self) -> None:
        """The function has returned: record what is left."""
        await self._awrite(self._rest())

    def close(self) -> None:
        """As `aclose`, of a plain function."""
        self._write(self._rest())

    async def aleave(self) -> None:
        """The function has raised: what its loop has passed over is done all the same."""
        await self._awrite([self._ended(item) for item in self.passed])

    def leave(self) -> None:
        """As `aleave`, of a plain function."""
        self._write([self._ended(item) for item in self.passed])

    def _ended(self, item: Item[Any]) -> Ended:
        return item.ended(self._job, self._claim, self._rule)

    def _rest(self) -> list[Ended]:
        if not self.going and not self.begun:
            word = "cancelled" if self._state == "cancelled" else "back"
            return [Ended(self._job, self._claim, self._run, self._stage, no, word) for no in self._left]
        ended = []
        for no, item in self._left.items():
            if no in self._streamed and item.state is None:
                word = "cancelled" if self._state == "cancelled" else "back"
                ended.append(Ended(self._job, self._claim, self._run, self._stage, no, word))
            else:
                ended.append(self._ended(item))
        return ended

    def _args(self, ended: Sequence[Ended]) -> list[tuple[UUID, str]]:
        """Where something is handed back, the arguments without it, and without what is recorded with it."""
        if not any(one.state in ("back", "open") for one in ended):
            return []
        keeps = spans(sorted(set(self._left) - {one.no for one in ended}))
        args = {"bulk_run": str(self._run), "stage": self._stage, "spans": keeps}
        return [(self._job, orjson.dumps(args).decode())]

    async def _awrite(self, ended: list[Ended]) -> None:
        if not ended:
            return
        assert self._clerk is not None
        self._noted(ended, *await self._clerk.record(ended, self._args(ended)))

    def _write(self, ended: list[Ended]) -> None:
        if not ended:
            return
        statements = self._client.statements
        with self._client.connections.plain() as conn:
            told = run(conn, store.record(statements, ended, self._args(ended)))
            run(conn, store.turn(statements, self._run))
        self._noted(ended, *told)

    def _noted(self, ended: Sequence[Ended], lost: set[UUID], states: dict[UUID, str]) -> None:
        if self._job in lost:
            raise Conflict("this job belongs to another worker by now; what was done here is not recorded")
        gone = {one.no for one in ended}
        for no in gone:
            self._left.pop(no, None)
        self._streamed -= gone
        self.passed = [item for item in self.passed if item.no not in gone]
        self._told(states.get(self._run, self._state))

    # --- transactions --------------------------------------------------------------------------------------------------------

    def transaction(self, items: Sequence[Item[Any]]) -> "Transaction":
        """Of these items."""
        return Transaction(self, items)

    @contextlib.asynccontextmanager
    async def abegin(self, items: Sequence[Item[Any]]) -> AsyncIterator[Any]:
        """The connection, and at the end the states of the items."""
        statements = self._client.statements
        async with self._client.connections.of_loop() as conn:
            async with conn.transaction():
                yield conn
                ended = [self._ended(item) for item in items if item.no in self._left]
                told = await arun(conn, store.record(statements, ended, self._args(ended)))
                if self._job in told[0]:
                    raise Conflict("this job belongs to another worker by now; its transaction is rolled back")
            self._noted(ended, *told)
            await arun(conn, store.turn(statements, self._run))

    @contextlib.contextmanager
    def begin(self, items: Sequence[Item[Any]]) -> Iterator[Any]:
        """As `abegin`, in a plain function."""
        statements = self._client.statements
        with self._client.connections.plain() as conn:
            with conn.transaction():
                yield conn
                ended = [self._ended(item) for item in items if item.no in self._left]
                told = run(conn, store.record(statements, ended, self._args(ended)))
                if self._job in told[0]:
                    raise Conflict("this job belongs to another worker by now; its transaction is rolled back")
            self._noted(ended, *told)
            run(conn, store.turn(statements, self._run))


class Transaction:
    """`async with items.transaction() as conn`, or `with` in a plain function."""

    def __init__(self, work: Work, items: Sequence[Item[Any]]) -> None:
        self._work = work
        self._items = items
        self._held: Any = None

    async def __aenter__(self) -> Any:
        self._held = self._work.abegin(self._items)
        return await self._held.__aenter__()

    async def __aexit__(self, *given: object) -> Any:
        return await self._held.__aexit__(*given)

    def __enter__(self) -> Any:
        self._held = self._work.begin(self._items)
        return self._held.__enter__()

    def __exit__(self, *given: object) -> Any:
        return self._held.__exit__(*given)

"""A run as its owner holds it: look at it, and act on it."""

from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jobwell.core.errors import Conflict, InvalidArguments, NotFound
from jobwell.core.runs import BadRow, Card, Delivery, ItemError
from jobwell.core.text import check_storable
from jobwell.runs import control
from jobwell.runs.intake import afill, fill
from jobwell.runs.token import is_genuine, place_of
from jobwell.store import runs as store
from jobwell.store.statements import Program, T, arun, run

if TYPE_CHECKING:
    from jobwell.client.client import Client
    from jobwell.runs.shape import ItemShape

MOST = 10_000
Rows = list[dict[str, Any]]


class Run:
    """One start of a bulk operation.

    Attributes:
        id: of the run.
        created: False where its key had been used, and this is the run of that time.
    """

    def __init__(self, client: "Client", id: UUID, *, created: bool = False, shape: "ItemShape | None" = None) -> None:
        self.id = id
        self.created = created
        self._client = client
        self._shape = shape

    # --- looking -------------------------------------------------------------------------------------------------------------

    def status(self) -> Card:
        """Its card: status, percent, counters of each stage, speed and the estimate of the end.

        Raises:
            NotFound: it is gone.
        """
        return self._ask(store.card(self._client.statements, self.id))

    async def astatus(self) -> Card:
        """As `status`, for async code."""
        return await self._aask(store.card(self._client.statements, self.id))

    def errors(self, limit: int = 100, *, after: tuple[int, int] | None = None, code: str | None = None) -> list[ItemError]:
        """Failed items with the reason, page by page.

        Args:
            limit: at the most.
            after: the `place` of the last one of the page before.
            code: only those that failed for this.
        """
        return self._ask(store.errors(self._client.statements, self.id, limit=min(limit, MOST), after=after, code=code))

    async def aerrors(
        self, limit: int = 100, *, after: tuple[int, int] | None = None, code: str | None = None
    ) -> list[ItemError]:
        """As `errors`, for async code."""
        return await self._aask(store.errors(self._client.statements, self.id, limit=min(limit, MOST), after=after, code=code))

    def reasons(self, limit: int = 50) -> list[tuple[str, str | None, int]]:
        """Why items have failed: (stage, code, how many), the most frequent first."""
        return self._ask(store.reasons(self._client.statements, self.id, limit=limit))

    async def areasons(self, limit: int = 50) -> list[tuple[str, str | None, int]]:
        """As `reasons`, for async code."""
        return await self._aask(store.reasons(self._client.statements, self.id, limit=limit))

    def item(self, key: str) -> list[dict[str, Any]]:
        """What became of one item, stage by stage; empty: there is none with this key."""
        return self._ask(store.item(self._client.statements, self.id, str(key)))

    async def aitem(self, key: str) -> list[dict[str, Any]]:
        """As `item`, for async code."""
        return await self._aask(store.item(self._client.statements, self.id, str(key)))

    def bad_rows(self, limit: int = 1000, *, after: int = 0) -> list[BadRow]:
        """Rows of the input that do not fit: number, field, reason. The first ten thousand are listed.

        Args:
            limit: at the most.
            after: the number of the last row of the page before.
        """
        return self._ask(store.bad_rows(self._client.statements, self.id, limit=limit, after=after))

    async def abad_rows(self, limit: int = 1000, *, after: int = 0) -> list[BadRow]:
        """As `bad_rows`, for async code."""
        return await self._aask(store.bad_rows(self._client.statements, self.id, limit=limit, after=after))

    # --- items ---------------------------------------------------------------------------------------------------------------

    def add(self, items: Iterable[Any]) -> int:
        """More items, while it is open. Returns how many were new; of the others the keys were there.

        Raises:
            Conflict: it is sealed.
        """
        return fill(self._client, self._shaped(), self.id, items, resumes=False).new

    async def aadd(self, items: Iterable[Any] | AsyncIterable[Any]) -> int:
        """As `add`, for async code."""
        return (await afill(self._client, self._shaped(), self.id, items, resumes=False)).new

    def seal(self) -> None:
        """No more items come: now totals are known, and the run can come to its end. Twice is once."""
        self._ask(store.seal(self._client.statements, self.id))
        self._ask(store.turn(self._client.statements, self.id))

    async def aseal(self) -> None:
        """As `seal`, for async code."""
        await self._aask(store.seal(self._client.statements, self.id))
        await self._aask(store.turn(self._client.statements, self.id))

    def _shaped(self) -> "ItemShape":
        if self._shape is None:
            raise Conflict("this run was looked up by its id: items are added through the operation: operation.run(id).add(…)")
        return self._shape

    # --- acting --------------------------------------------------------------------------------------------------------------

    def pause(self, *, by: str, why: str | None = None) -> bool:
        """Begin with no further item. What runs goes on to its next item or its end. False: there was nothing to pause."""
        return self._change("pause", by, why)

    async def apause(self, *, by: str, why: str | None = None) -> bool:
        """As `pause`, for async code."""
        return await self._achange("pause", by, why)

    def resume(self, *, by: str, why: str | None = None) -> bool:
        """Go on. A preparation that has failed is tried again. False: it was not paused, or waits behind its canary."""
        return self._change("resume", by, why)

    async def aresume(self, *, by: str, why: str | None = None) -> bool:
        """As `resume`, for async code."""
        return await self._achange("resume", by, why)

    def continue_(self, *, by: str, why: str | None = None) -> bool:
        """Let the rest go behind a canary. False: nothing is held."""
        return self._change("let_go", by, why)

    async def acontinue(self, *, by: str, why: str | None = None) -> bool:
        """As `continue_`, for async code."""
        return await self._achange("let_go", by, why)

    def cancel(self, *, by: str, why: str | None = None) -> bool:
        """End it: what is open is cancelled, what runs comes to its end. False: it was over."""
        return self._change("cancel", by, why)

    async def acancel(self, *, by: str, why: str | None = None) -> bool:
        """As `cancel`, for async code."""
        return await self._achange("cancel", by, why)

    def failed(self, *, stage: str | None = None, code: str | None = None, keys: Sequence[str] | None = None) -> int:
        """How many items a retry with the same choice would open: its preview."""
        return self._ask(store.count_failed(self._client.statements, self.id, stage=stage, code=code, keys=_texts(keys)))

    async def afailed(self, *, stage: str | None = None, code: str | None = None, keys: Sequence[str] | None = None) -> int:
        """As `failed`, for async code."""
        return await self._aask(store.count_failed(self._client.statements, self.id, stage=stage, code=code, keys=_texts(keys)))

    def retry(
        self,
        *,
        by: str,
        why: str | None = None,
        stage: str | None = None,
        code: str | None = None,
        keys: Sequence[str] | None = None,
    ) -> int:
        """Open failed items again, in this run: exactly those, with a new budget of attempts.

        Without a choice, finishes that have failed too.

        Args:
            by: who, for the audit.
            why: the reason.
            stage: only those that failed in this stage.
            code: only those that failed for this.
            keys: only these items.

        Returns:
            How many; 0 where none is failed, as after a second click.

        Raises:
            Conflict: nothing ran in it, or it is still being cancelled.
        """
        statements = self._client.statements
        with self._client.connections.plain() as conn:
            with conn.transaction():
                found = run(conn, control.retry(statements, self.id, stage=stage, code=code, keys=_texts(keys), by=by, why=why))
            run(conn, store.turn(statements, self.id))
        return found

    async def aretry(
        self,
        *,
        by: str,
        why: str | None = None,
        stage: str | None = None,
        code: str | None = None,
        keys: Sequence[str] | None = None,
    ) -> int:
        """As `retry`, for async code."""
        statements = self._client.statements
        async with self._client.connections.of_loop() as conn:
            async with conn.transaction():
                found = await arun(
                    conn, control.retry(statements, self.id, stage=stage, code=code, keys=_texts(keys), by=by, why=why)
                )
            await arun(conn, store.turn(statements, self.id))
        return found

    # --- how -----------------------------------------------------------------------------------------------------------------

    def _ask(self, program: Program[T]) -> T:
        with self._client.connections.plain() as conn:
            return run(conn, program)

    async def _aask(self, program: Program[T]) -> T:
        async with self._client.connections.of_loop() as conn:
            return await arun(conn, program)

    def _change(self, verb: control.Verb, by: str, why: str | None) -> bool:
        statements = self._client.statements
        with self._client.connections.plain() as conn:
            with conn.transaction():
                done = run(conn, control.change(statements, verb, self.id, by, why))
            if done:
                run(conn, control.follow(statements, verb, self.id, by, why))
        return done

    async def _achange(self, verb: control.Verb, by: str, why: str | None) -> bool:
        statements = self._client.statements
        async with self._client.connections.of_loop() as conn:
            async with conn.transaction():
                done = await arun(conn, control.change(statements, verb, self.id, by, why))
            if done:
                await arun(conn, control.follow(statements, verb, self.id, by, why))
        return done

    def __repr__(self) -> str:
        return f"<run {self.id}>"


class Runs:
    """All runs of an app: `app.runs`.

    Args:
        client: gives the client of the app, at the first use.
    """

    def __init__(self, client: "Callable[[], Client]") -> None:
        self._client = client

    def get(self, run: UUID | str, key: str | None = None) -> Run:
        """A run by its id; or by its operation and key: `app.runs.get("hr.transfer", "transfer-2026-01-28")`.

        Raises:
            NotFound: there is none with this key.
        """
        client = self._client()
        if key is None:
            return Run(client, _id(run))
        with client.connections.plain() as conn:
            return Run(client, _run(conn, store.by_key(client.statements, str(run), key)))

    async def aget(self, run: UUID | str, key: str | None = None) -> Run:
        """As `get`, for async code."""
        client = self._client()
        if key is None:
            return Run(client, _id(run))
        async with client.connections.of_loop() as conn:
            return Run(client, await arun(conn, store.by_key(client.statements, str(run), key)))

    def list(
        self, operation: str | None = None, *, status: str | None = None, before: datetime | None = None, limit: int = 50
    ) -> Rows:
        """The newest runs, without their counters."""
        client = self._client()
        with client.connections.plain() as conn:
            return _run(
                conn, store.latest(client.statements, operation=operation, state=status, before=before, limit=min(limit, MOST))
            )

    async def alist(
        self, operation: str | None = None, *, status: str | None = None, before: datetime | None = None, limit: int = 50
    ) -> Rows:
        """As `list`, for async code."""
        client = self._client()
        async with client.connections.of_loop() as conn:
            return await arun(
                conn, store.latest(client.statements, operation=operation, state=status, before=before, limit=min(limit, MOST))
            )

    def deliver(self, token: str, state: Delivery, message: str | None = None) -> bool:
        """What a gateway tells of an item later, by its token: "accepted", then "delivered" or "bounced".

        Returns:
            False where that was known, or an end was told before.

        Raises:
            InvalidArguments: the token or the state is none of ours.
        """
        client = self._client()
        with client.connections.plain() as conn:
            return _run(conn, _deliver(client, token, state, message))

    async def adeliver(self, token: str, state: Delivery, message: str | None = None) -> bool:
        """As `deliver`, for async code."""
        client = self._client()
        async with client.connections.of_loop() as conn:
            return await arun(conn, _deliver(client, token, state, message))


_run = run  # where a parameter has the name


def _deliver(client: "Client", token: str, state: str, message: str | None) -> Program[bool]:
    if state not in ("accepted", "delivered", "bounced"):
        raise InvalidArguments(f"state={state!r} must be 'accepted', 'delivered' or 'bounced'", "state")
    check_storable(message=message)
    run_id, stage, no = place_of(token)
    try:
        found = yield from store.facts(client.statements, run_id)
    except NotFound:
        raise InvalidArguments("this is no token of an item in this store, or its run is gone", "token") from None
    if not is_genuine(token, found.secret):
        raise InvalidArguments("this is no token of an item in this store", "token")
    told = yield from store.deliver(client.statements, (run_id, stage, no), state, message)
    return told == "changed"


def _id(value: UUID | str) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except ValueError:
        raise InvalidArguments(f"{value!r} is no id of a run; by its key it is get(operation, key)", "run") from None


def _texts(keys: Sequence[str] | None) -> list[str] | None:
    return None if keys is None else [str(key) for key in keys]

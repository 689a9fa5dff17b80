"""One stream of claims: some gates of some queues, and where the next claim of them begins."""

import random
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from jobwell.core.ids import new_id
from jobwell.core.marks import Lane, Mark, Marks
from jobwell.store.jobs import FIRST_GATE, Batch, Claimed, ClaimRequest, JobVerbs

LOWER_RANKS_EVERY = 16  # at least one claim in so many goes to the lower ranks, round robin
AGAIN = 3600.0  # seconds: nothing says that it is worth while to ask sooner
LAST = "\U0010ffff"  # sorts behind every name


class Rotation:
    """Where the next claim begins.

    Behind the lane where the last one ended (at random the first time), and once in sixteen at a lower rank, round robin,
    so that low priority is never starved.

    Args:
        gates: to begin at one of them.
        strict: low priority waits for as long as there is anything higher.
    """

    def __init__(self, gates: Sequence[int], *, strict: bool = False) -> None:
        self._strict = strict
        self.gate = random.choice(gates) if gates else FIRST_GATE  # noqa: S311  so that workers do not begin alike
        self.tenant = ""
        self._count = 0
        self._top = 0
        self._low = 0
        self._ends: dict[int, str] = {}  # of gates in front of which a limit stood: the last tenant that had a chance

    def ranks(self) -> tuple[int, ...]:
        """The ranks at which the next claim begins: one after the other until there is something."""
        if self._strict:
            return (0,)
        self._count += 1
        if self._count % LOWER_RANKS_EVERY:
            return (0,)
        return tuple(dict.fromkeys((max(self._low, self._top + 1), self._top + 1, 0)))

    def learn(self, rows: Sequence[Claimed], end: Claimed | None = None) -> None:
        """Remember where a claim ended."""
        if end is not None and end.reads:
            self._pass(rows, end)
        else:
            self._walk_on(rows, end)
        if not rows:
            return
        if not self._strict and self._count % LOWER_RANKS_EVERY == 0:
            self._low = rows[-1].rank + 1
        else:
            self._top = rows[0].rank

    def _walk_on(self, rows: Sequence[Claimed], end: Claimed | None) -> None:
        last = end or next((row for row in reversed(rows) if row.lanes), None)  # marked by the store: the rows are in no order
        if last is not None and last.lanes < 0:  # a heavy tenant, which has not had all of its share yet
            self.gate, self.tenant = before(last.gate, last.tenant)
        elif last is None or last.lanes <= 1:
            self.gate, self.tenant = FIRST_GATE, ""
        else:
            self.gate, self.tenant = last.gate, last.tenant

    def _pass(self, rows: Sequence[Claimed], end: Claimed) -> None:
        """A limit closed a gate in the middle of its tenants: the next ones have their chance before those at its beginning.

        The walk comes to a gate from the one before it, so at its beginning; then it is entered once more where it was left.
        After that it is the turn of another gate.
        """
        if self.gate != end.gate and end.gate in self._ends:
            self.gate, self.tenant = end.gate, self._ends[end.gate]
            return
        self._ends[end.gate] = end.tenant
        gates = sorted({end.gate, *(row.gate for row in rows)})
        self.gate = next((gate for gate in gates if gate > end.gate), gates[0])
        self.tenant = self._ends.get(self.gate, "")


def before(gate: int, tenant: str) -> tuple[int, str]:
    """A place just in front of a lane."""
    if not tenant:
        return max(gate - 1, FIRST_GATE), LAST
    point = ord(tenant[-1]) - 1
    if point < 1 or 0xD800 <= point <= 0xDFFF:
        return gate, tenant[:-1]
    return gate, tenant[:-1] + chr(point) + LAST


class Stream:
    """Claims for some gates of some queues, one after the other.

    Args:
        worker: who claims.
        queues: where.
        gates: open ones.
        jobs: the store.
        begin: starts the attempts of what was claimed.
        clock: monotonic.
        strict: no claim goes to lower ranks while a higher one has jobs.
    """

    def __init__(
        self,
        *,
        worker: UUID,
        queues: Sequence[str],
        gates: Sequence[int],
        jobs: JobVerbs,
        begin: Callable[[Sequence[Claimed], UUID], None],
        clock: Callable[[], float],
        strict: bool = False,
    ) -> None:
        self._worker = worker
        self._queues = list(queues)
        self._gates = list(gates)
        self._jobs = jobs
        self._begin = begin
        self._clock = clock
        self._rotation = Rotation(self._gates, strict=strict)
        self._marks = Marks()
        self._again = AGAIN
        self._asked: set[UUID] = set()  # claim ids whose jobs are not in the worker's memory, as far as is known

    @property
    def doubtful(self) -> bool:
        """Whether an answer was lost: rows may carry our claim ids without our knowing."""
        return bool(self._asked)

    def again(self) -> float:
        """Seconds until a rate lets the next job in, as the claims since the last call have told."""
        again, self._again = self._again, AGAIN
        return again

    def settle(self) -> None:
        """It was looked after."""
        self._asked.clear()

    def knows(self, gate: int) -> bool:
        """Whether a gate is open."""
        return gate in self._gates

    def open(self, gate: int) -> None:
        """Open one more."""
        self._gates.append(gate)

    async def waits(self, conn: "AsyncConnection[Any]") -> bool:
        """Whether any job is ready behind its gates."""
        return not set(self._gates).isdisjoint(await self._jobs.gates(conn, self._queues))

    async def claim(self, conn: "AsyncConnection[Any]", want: int) -> Batch:
        """Take up to `want` jobs and begin them."""
        rows = await self.take(conn, want)
        self.begin(rows)
        return rows

    async def take(self, conn: "AsyncConnection[Any]", want: int) -> Batch:
        """Take up to `want` jobs. They are the worker's, and in doubt, until it begins them."""
        lanes = self._marks.lanes(self._clock())
        rows = Batch()
        for from_rank in self._rotation.ranks():
            rows = await self._take_from(conn, want, from_rank, lanes)
            if rows or rows.end is not None:
                self._rotation.learn(rows, rows.end)
            if rows:
                break
        return rows

    def begin(self, rows: Batch) -> None:
        """Begin what was taken."""
        if rows:
            self._begin(rows, rows.claim_id)
            self._asked.discard(rows.claim_id)

    async def _take_from(
        self, conn: "AsyncConnection[Any]", want: int, from_rank: int, lanes: list[tuple[Lane, Mark]] | None
    ) -> Batch:
        claim_id, began = new_id(), self._clock()
        request = ClaimRequest(
            self._worker,
            claim_id,
            self._queues,
            self._gates,
            want,
            from_rank,
            self._rotation.gate,
            self._rotation.tenant,
            lanes,
            self._marks.lag,
        )
        self._asked.add(claim_id)
        rows = await self._jobs.claim(conn, request)
        now = self._clock()
        if rows.again is not None:
            self._again = min(self._again, rows.again)
        self._marks.learn(rows, whole=lanes is None, now=now, took=now - began)
        if rows:
            rows[:] = await self.with_payloads(conn, rows)
        else:
            self._asked.discard(claim_id)
        return rows

    async def with_payloads(self, conn: "AsyncConnection[Any]", rows: list[Claimed]) -> list[Claimed]:
        """Add the arguments that stand apart."""
        apart = [row.id for row in rows if row.args is None]
        if not apart:
            return rows
        held = await self._jobs.payloads(conn, apart)
        return [row._replace(args=held.get(row.id)) if row.args is None else row for row in rows]

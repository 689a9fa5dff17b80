"""Why a job does not run: a decision from facts that were all read in one moment."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from jobwell.core.duration import text

CAP = 10_000
SHORT = 5.0  # seconds for which a due or claimable job may stand without anybody having to ask why


@dataclass(frozen=True, slots=True)
class Held:
    """A task, resource or tenant that somebody holds; until None: until it is resumed."""

    kind: str
    name: str
    at: datetime
    by: str
    why: str | None
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Limited:
    """A limit on a job, with what uses it.

    Attributes:
        rates: as they are written.
        used: jobs that run under it.
        wait: seconds until its rates let the next one in.
        holders: the first few of these jobs.
    """

    kind: str
    name: str
    per: str
    concurrency: int | None
    rates: tuple[str, ...]
    used: int
    wait: float
    holders: tuple[UUID, ...]

    @property
    def full(self) -> bool:
        """Whether as many run as may."""
        return self.concurrency is not None and self.used >= self.concurrency


@dataclass(frozen=True, slots=True)
class Broken:
    """The breaker of a resource, open until then or being probed; `by` an operator, or None: its calls failed."""

    resource: str
    state: str
    at: datetime
    until: datetime
    why: str | None
    by: str | None


@dataclass(frozen=True, slots=True)
class Awaited:
    """A job whose end, or whose success, is waited for; failed: it is in the quarantine."""

    id: UUID
    state: str
    task: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the store says about a job and its surroundings, at `now`.

    Attributes:
        ended_at, reason, said: of a job that is over.
        pause, paused_at, paused_by, paused_why, paused_until: of its queue, or of all ('*').
        holder, holder_started_at: the job that holds its lock key.
        live, serving, knowing: live workers; those that serve its queue; those among them that know its task.
        slots, busy: of the knowing ones; of each that has pools, those of the pool that serves the queue.
        pooled: how many of them have pools.
        cost: slots that the job takes; fitting: workers among the knowing ones that have so many free.
        heavy: it waits where memory is short; held: how many of the knowing ones hold such jobs back, and why one of them does.
        apart: it runs in a child process of a worker, by declaration or because its process died before.
        children, children_busy: of the knowing workers, and how many of them run a job now. Children take no slot.
        worker, worker_there: the one that runs it, and whether it still has its lease.
        above: ready jobs of the queue with a higher priority; older: those before it in its own lane. Both stop at `CAP`.
        error_type, error: of its last attempt.
        cancel_at, cancel_by: somebody wants it to stop.
        skips: it is dropped where its lock key is held.
        key_wait: seconds until the rate of its lock key lets it in.
        before, before_state: the job that goes first, where its lock keeps order.
        holds: on its task, resources and tenant.
        limits: those that have no room.
        broken: breakers of its resources that are not closed.
        awaited: the first of the jobs that it waits for; awaits: how many there are.
        pace_above, pace_lane: jobs a second that ended in its queue, and in its lane, in the last minutes; None: too few to tell.
    """

    now: datetime
    id: UUID
    state: str
    task: str
    queue: str
    lock_key: str
    attempt: int
    run_at: datetime
    ready_at: datetime | None
    started_at: datetime | None
    deadline: datetime | None
    ended_at: datetime | None
    reason: str | None
    said: str | None
    pause: str | None
    paused_at: datetime | None
    paused_by: str | None
    paused_why: str | None
    paused_until: datetime | None
    holder: UUID | None
    holder_started_at: datetime | None
    live: int
    serving: int
    knowing: int
    slots: int
    busy: int
    worker: str | None
    worker_there: bool | None
    above: int
    older: int
    error_type: str | None
    error: str | None
    cancel_at: datetime | None
    cancel_by: str | None
    apart: bool = False
    children: int = 0
    children_busy: int = 0
    pooled: int = 0
    cost: int = 1
    fitting: int = 1
    heavy: bool = False
    held: int = 0
    held_why: str | None = None
    tenant: str = ""
    skips: bool = False
    key_wait: float = 0.0
    before: UUID | None = None
    before_state: str | None = None
    holds: tuple[Held, ...] = ()
    limits: tuple[Limited, ...] = ()
    broken: tuple[Broken, ...] = ()
    pace_above: float | None = None
    pace_lane: float | None = None
    awaited: tuple[Awaited, ...] = ()
    awaits: int = 0


@dataclass(frozen=True, slots=True)
class Because:
    """One reason: a code for programs, and a sentence that says what to do."""

    code: str
    sentence: str


def explain(facts: Facts) -> list[Because]:
    """All reasons that hold, the one to look at first in front. Never empty."""
    if facts.state == "running":
        return list(_running(facts))
    if facts.ended_at is not None:
        return [_ended(facts)]
    if facts.state == "waiting":
        return list(_follows(facts))
    if facts.state in ("scheduled", "retrying"):
        return [*_later(facts), *_hindered(facts)]
    found = [*_hindered(facts), *_queued(facts)]
    if found:
        return found
    waits = _since(facts, facts.ready_at)
    more = (
        ""
        if facts.ready_at and (facts.now - facts.ready_at).total_seconds() < SHORT
        else "; if it goes on, look into the workers' logs"
    )
    return [Because("next", f"Nothing is in its way: it has been ready for {waits} and is claimed by the next free slot{more}.")]


def _running(facts: Facts) -> Iterator[Because]:
    who, since = facts.worker or "a worker that is no longer listed", _since(facts, facts.started_at)
    if facts.cancel_at is not None:
        yield Because(
            "cancelling", f"{facts.cancel_by} asked {_since(facts, facts.cancel_at)} ago that it stops; it ends with its attempt."
        )
    if not facts.worker_there:
        yield Because("worker_gone", f"It began {since} ago on {who}, which is gone; another worker takes it back within a lease."
                      + ("" if facts.live else " No worker lives: start one with `jobwell worker module:app`."))  # fmt: skip
    else:
        yield Because("running", f"It runs: attempt {facts.attempt}, on {who}, for {since}. Nothing is to be done.")


def _ended(facts: Facts) -> Because:
    ago = _since(facts, facts.ended_at)
    if facts.state == "succeeded":
        return Because("succeeded", f"It has succeeded, {ago} ago.")
    if facts.state == "cancelled":
        return Because("cancelled", f"It was cancelled {ago} ago" + (f": {facts.said}." if facts.said else "."))
    if facts.reason is None:
        return Because("failed", f"It has failed and was settled {ago} ago" + (f": {facts.said}." if facts.said else "."))
    cause = facts.said or "no message"
    return Because(f"failed_{facts.reason}", f"It has failed ({facts.reason}) {ago} ago: {cause}. {_mend(facts)}.")


def _later(facts: Facts) -> Iterator[Because]:
    rest = (facts.run_at - facts.now).total_seconds()
    after = ""
    if facts.state == "retrying" and (facts.error_type or facts.error):
        after = f" after {' '.join(filter(None, (facts.error_type, facts.error)))}"
    if rest <= 0:
        late = "" if facts.live else " No worker lives that would make it ready: start one with `jobwell worker module:app`."
        yield Because("due", f"It has been due for {text(-rest)} and is made ready by the next round of any worker.{late}")
    elif facts.state == "retrying":
        yield Because(
            "retrying",
            f"Its next attempt is in {text(rest)}, at {_at(facts.run_at)}{after}. It has begun {facts.attempt} time(s).",
        )
    else:
        yield Because("not_due", f"It is not due yet: it becomes ready in {text(rest)}, at {_at(facts.run_at)}.")


def _follows(facts: Facts) -> Iterator[Because]:
    for one in facts.awaited:
        what = f"It follows job {one.id}" + (f" ({one.task})" if one.task else "")
        if one.state == "failed":
            yield Because("follows_failed", f"{what}, which has failed: it waits until `jobwell quarantine retry {one.id}` has"
                          " made that one succeed; if that one is discarded, this one is cancelled.")  # fmt: skip
        else:
            yield Because("follows", f"{what}, which is {one.state}; `jobwell jobs why {one.id}` tells more.")
    if facts.awaits > len(facts.awaited):
        yield Because("follows", f"It waits for {facts.awaits:,} jobs in all.")
    if not facts.awaits:
        yield Because("follows", "What it follows has ended at this moment: it is being released.")


def _hindered(facts: Facts) -> Iterator[Because]:
    if facts.deadline is not None and facts.deadline <= facts.now:
        passed = _since(facts, facts.deadline)
        yield Because(
            "deadline_passed", f"Its deadline passed {passed} ago; the next worker that claims it moves it to the quarantine."
        )
    if facts.pause is not None:
        what, name = ("All queues are", "'*'") if facts.pause == "*" else (f"The queue {facts.queue!r} is", facts.queue)
        why = f" because: {facts.paused_why}" if facts.paused_why else ""
        ends = f" It resumes by itself at {_at(facts.paused_until)};" if facts.paused_until else ""
        yield Because("paused", f"{what} paused by {facts.paused_by}, for {_since(facts, facts.paused_at)}{why}.{ends}"
                      f" `jobwell queues resume {name}` lets it go on.")  # fmt: skip
    yield from (_held(facts, hold) for hold in facts.holds)
    yield from (_broken(facts, breaker) for breaker in facts.broken)
    if not facts.live:
        yield Because("no_worker", "No worker lives; start one with `jobwell worker module:app`.")
    elif not facts.serving:
        yield Because("queue_unserved", f"None of the {facts.live} live worker(s) serves the queue {facts.queue!r};"
                      f" start one with `jobwell worker module:app --queues {facts.queue}`.")  # fmt: skip
    elif not facts.knowing:
        yield Because("task_unknown", f"None of the {facts.serving} live worker(s) of its queue knows the task {facts.task!r};"
                      " deploy the release that declares it, or correct the name.")  # fmt: skip


def _mend(facts: Facts) -> str:
    if facts.reason == "held":
        return f"Find out what became of its step, and say it: `jobwell steps list {facts.id}`, `jobwell steps answer`"
    return f"Mend the cause, then `jobwell quarantine retry {facts.id}`"


def _held(facts: Facts, hold: Held) -> Because:
    why = f" because: {hold.why}" if hold.why else ""
    ends = f" It resumes by itself at {_at(hold.until)};" if hold.until else ""
    return Because(
        f"{hold.kind}_held",
        f"The {hold.kind} {hold.name!r} is held by {hold.by}, for {_since(facts, hold.at)}{why}.{ends}"
        f" `jobwell resume {hold.kind} {hold.name}` lets it go on.",
    )


def _broken(facts: Facts, breaker: Broken) -> Because:
    since, why = _since(facts, breaker.at), breaker.why or "no reason given"
    who = f"{breaker.by} opened it {since} ago: {why}" if breaker.by else f"opened {since} ago: {why}"
    close = f"`jobwell breakers close {breaker.resource}` lets all go on at once"
    if breaker.state == "probing":
        return Because("breaker_probing", f"The breaker of {breaker.resource!r} ({who}) lets single jobs try; it closes as soon"
                       f" as one goes well. {close}.")  # fmt: skip
    return Because("breaker_open", f"The breaker of {breaker.resource!r} is open until {_at(breaker.until)} ({who}); then single"
                   f" jobs try. Waiting costs no attempt. {close}.")  # fmt: skip


def _queued(facts: Facts) -> Iterator[Because]:
    yield from _locked(facts)
    for limit in facts.limits:
        yield from _limited(facts, limit)
    if facts.heavy and facts.knowing and facts.held >= facts.knowing:
        yield Because("memory_high", f"None of the {facts.knowing} worker(s) that could run it begins heavy tasks now:"
                      f" {facts.held_why}. It waits until memory is free, or start a worker where there is some.")  # fmt: skip
    if facts.apart and facts.children:  # it takes no slot, but a child
        if facts.children_busy >= facts.children:
            yield Because("children_busy", f"It runs in a child process, and all {facts.children} child(ren) of the"
                          f" {facts.knowing} worker(s) that could run it are busy; it waits for one,"
                          " or set `children` higher, or start more workers.")  # fmt: skip
    elif facts.knowing and (facts.busy >= facts.slots or not facts.fitting):
        yield _no_slot(facts)
    if facts.above or facts.older:
        above = f"{_count(facts.above)} job(s) of higher priority" if facts.above else ""
        older = f"{_count(facts.older)} older one(s) of its own task and tenant" if facts.older else ""
        yield Because("behind", f"In the queue {facts.queue!r} {' and '.join(filter(None, (above, older)))} go first;"
                      f" {_estimate(facts)}.")  # fmt: skip


def _locked(facts: Facts) -> Iterator[Because]:
    if facts.holder is not None:
        since = _since(facts, facts.holder_started_at)
        then = "its lock says that it is dropped then" if facts.skips else "it starts when that one has ended"
        yield Because("lock_held", f"Its lock {facts.lock_key!r} is held by job {facts.holder}, running for {since};"
                      f" {then}.")  # fmt: skip
    if facts.before is not None:
        yield Because("lock_order", f"Its lock {facts.lock_key!r} keeps order, and job {facts.before} goes first;"
                      f" that one is {facts.before_state}.")  # fmt: skip
    if facts.key_wait > 0:
        yield Because("lock_rate", f"The rate of its lock {facts.lock_key!r} lets the next job in {_in(facts, facts.key_wait)}.")


def _limited(facts: Facts, limit: Limited) -> Iterator[Because]:
    named = "each tenant" if limit.name == "*" else f"the {limit.kind} {limit.name!r}"
    each = "" if limit.per == "fleet" else f" per {limit.per}" + ("" if limit.per == "tenant" else " where there is most room")
    show = f"`jobwell limits show {limit.kind}:{facts.tenant if limit.name == '*' else limit.name}`"
    if limit.concurrency == 0:
        yield Because("limit_zero", f"The limit of {named}{each} is 0: nothing starts until it is raised;"
                      f" {show} says who set it.")  # fmt: skip
    elif limit.full:
        more = ", …" if limit.used > len(limit.holders) else ""
        users = f" by {', '.join(map(str, limit.holders))}{more}" if limit.holders else ""
        yield Because("limit_full", f"The limit of {named}{each} is in use, {limit.used} of {limit.concurrency}{users};"
                      f" it waits for one of them to end. {show} tells more.")  # fmt: skip
    if limit.wait > 0:
        yield Because("rate", f"The rate of {named}{each} ({', '.join(limit.rates)}) lets the next job in"
                      f" {_in(facts, limit.wait)}. {show} tells more.")  # fmt: skip


def _estimate(facts: Facts) -> str:
    """The time that those in front take, at the pace of the last minutes."""
    parts = ((facts.above, facts.pace_above), (facts.older, facts.pace_lane))
    if any(count and pace is None for count, pace in parts):
        return "too few of them have ended in the last minutes for an estimate"
    least = "at least " if CAP in (facts.above, facts.older) else ""
    takes = text(sum(count / pace for count, pace in parts if count and pace))
    return f"at the pace of the last minutes that takes {least}{takes}"


def _in(facts: Facts, wait: float) -> str:
    return f"in {text(wait)}, at {_at(facts.now + timedelta(seconds=wait))}"


def _no_slot(facts: Facts) -> Because:
    pools = f" in the pools of the queue {facts.queue!r}" if facts.pooled else ""
    if not facts.slots:
        return Because("slots_none", f"The {facts.knowing} worker(s) that could run it have no slots{pools} at this time of"
                       " the day; it waits for the time table, or start a worker that has.")  # fmt: skip
    if facts.busy >= facts.slots:
        return Because("slots_busy", f"All {facts.slots} slot(s){pools} of the {facts.knowing} worker(s) that could run it are"
                       " busy; it waits for one, or start more workers or slots.")  # fmt: skip
    return Because("slots_busy", f"It takes {facts.cost} slots, and none of the {facts.knowing} worker(s) that could run it has"
                   f" so many free{pools}; when its turn comes they are gathered.")  # fmt: skip


def _count(number: int) -> str:
    return f"{number:,}+" if number >= CAP else f"{number:,}"


def _since(facts: Facts, moment: datetime | None) -> str:
    return "an unknown time" if moment is None else text(max(0.0, (facts.now - moment).total_seconds()))


def _at(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S %Z}"

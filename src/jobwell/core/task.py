"""A task: a function with its whole contract."""

import difflib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from jobwell.core import retry as retry_rules
from jobwell.core.dedup import Dedup
from jobwell.core.duration import Duration, seconds
from jobwell.core.error_rules import ErrorKey, Rules
from jobwell.core.error_rules import rules as error_rules
from jobwell.core.error_table import Kind
from jobwell.core.errors import DeclarationError
from jobwell.core.failed import follow_up_of
from jobwell.core.ids import gate_of
from jobwell.core.limits import Limit, Rate, Rates, declared, given, rates
from jobwell.core.ranks import rank_of
from jobwell.core.retry import Backoff, Delays, Fixed, Retries, RetryRule
from jobwell.core.signature import Signature
from jobwell.core.size import Size, size

STANDARD_QUEUES: Final = ("critical", "notifications", "default", "bulk", "reports")
Executor = Literal["async", "thread", "process"]
Busy = Literal["wait", "skip"]
OnLost = Literal["retry", "fail"]
OnLeaseLost = Literal["stop", "finish"]
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,199}")
MOST_COST = 10_000


@dataclass(frozen=True, init=False)
class Lock:
    """One at a time: of all jobs of the task with the same values of these parameters, one runs and the others wait as ready.

    Args:
        by: names of parameters.
        busy: what becomes of a job whose key is held: "wait" (the default), or "skip": it is cancelled by whoever looks for work
            next, with a note that names the holder.
        ordered: a job that is tried again, or snoozes, is not passed by later ones of its key. Oldest first means by the time of
            enqueue then.
        rate: how often per key: "1/min", or several windows.

    Guarantee: a unique index holds it, fleet-wide; a job that waits uses no slot and no attempt. Order between the
    waiting ones is oldest first. If the holder's worker dies, the key is free when its job is rescued.

    Raises:
        DeclarationError: it names no parameter, or a value is unknown.
    """

    by: tuple[str, ...]
    busy: Busy
    ordered: bool
    rates: tuple[Rate, ...]

    def __init__(self, *by: str, busy: Busy = "wait", ordered: bool = False, rate: Rates | None = None) -> None:
        if not by:
            raise DeclarationError("Lock() needs the name of at least one parameter, such as Lock('employee_id')")
        _one_of(busy, ("wait", "skip"), "Lock: busy")
        object.__setattr__(self, "by", by)
        object.__setattr__(self, "busy", busy)
        object.__setattr__(self, "ordered", bool(ordered))
        object.__setattr__(self, "rates", rates(rate))


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """The contract as checked values. `rank` and `gate` are what the store works with.

    Attributes:
        coroutine: whether it is an async function.
        resources: what it uses; a limit or a hold on one of them is one on it.
        limits: on it.
        errors: rules for what it raises: its own, then those of its app.
        memory: bytes that its child may hold; only in a process.
        aliases: names that it had before; jobs stored under them are its own.
        version: of its payload.
        on_lost: what becomes of a job whose worker vanished, or whose process died, in the middle of it.
        on_lease_lost: what becomes of an attempt whose worker cannot renew its lease.
        cost: slots that a job of it takes.
        on_failed: the task that is enqueued when a job of it has failed for good.
        dedup: what makes a second job of it the same as the first.
        upgrades: from a version to the next one: takes the arguments by name and returns them as the next version has them.
    """

    name: str
    fn: Callable[..., Any]
    signature: Signature
    queue: str
    priority: int
    timeout: float
    deadline: float
    retry: RetryRule | Retries
    owner: str | None
    tenant: str | None
    lock: Lock | None
    executor: Executor
    coroutine: bool
    memory: int | None
    aliases: tuple[str, ...]
    version: int
    upgrades: Mapping[int, Upgrade]
    gate: int
    result_ttl: float | None = None
    keep_result: bool = True
    on_lost: OnLost = "retry"
    on_lease_lost: OnLeaseLost = "stop"
    cost: int = 1
    resources: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    errors: tuple[Rules, ...] = ()
    on_failed: "TaskSpec | None" = None
    dedup: Dedup | None = None

    @property
    def heavy(self) -> bool:
        """Whether it waits where memory is short."""
        return self.cost > 1 or self.memory is not None

    @property
    def gates(self) -> tuple[int, ...]:
        """Of its name and of those that it had before, also as they were before it named resources."""
        names = (self.name, *self.aliases)
        return tuple(dict.fromkeys(gate_of(name, used) for used in (self.resources, ()) for name in names))


def declare(
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    queue: str = "default",
    priority: int = 0,
    timeout: Duration = "5m",
    deadline: Duration = "24h",
    retry: RetryRule | Retries | None = None,
    owner: str | None = None,
    tenant: str | None = None,
    lock: Lock | None = None,
    executor: str | None = None,
    memory: Size | None = None,
    aliases: Iterable[str] = (),
    version: int = 1,
    upgrades: Mapping[int, Upgrade] | None = None,
    result_ttl: Duration | None = None,
    keep_result: bool = True,
    on_lost: OnLost = "retry",
    on_lease_lost: OnLeaseLost = "stop",
    cost: int = 1,
    resources: Iterable[str] = (),
    concurrency: int | None = None,
    rate: Rates | None = None,
    limits: Iterable[Limit] = (),
    errors: Mapping[ErrorKey, Kind] | None = None,
    on_failed: Any = None,
    dedup: Dedup | None = None,
) -> TaskSpec:
    """Check a declaration.

    Raises:
        DeclarationError: the sentence names the task, the option, and what would be right.
    """
    if not callable(fn) or isinstance(fn, type) or not hasattr(fn, "__qualname__"):
        raise DeclarationError(f"{fn!r} is not a function; a task is made from a plain or async function")
    name = name or f"{module_name(fn)}.{fn.__qualname__}".replace(".<locals>", "")
    if not _NAME.fullmatch(name):
        raise DeclarationError(f"task name {name!r}: use letters, digits, '_', '.', ':' and '-', at most 200 in all")
    who = f"task {name}: "
    signature = Signature(fn, name)
    _check_parameters(fn, signature, tenant, lock, dedup, who)
    if not isinstance(retry, Backoff | Fixed | Delays | Retries | None):
        raise DeclarationError(f"{who}retry={retry!r} must be Backoff(…), Fixed(…), Delays(…) or Retries(…)")
    rank_of(priority, who)
    chosen = _executor(fn, executor, who)
    used = _resources(resources, who)
    return TaskSpec(
        name=name, fn=fn, signature=signature, queue=queue, priority=priority, timeout=_timeout(timeout, who),
        deadline=seconds(deadline, f"{who}deadline"), retry=retry or retry_rules.DEFAULT, owner=owner, tenant=tenant, lock=lock,
        executor=chosen, coroutine=inspect.iscoroutinefunction(fn), gate=gate_of(name, used), aliases=_former(name, aliases, who),
        memory=_memory(memory, chosen, who), cost=_cost(cost, chosen, who),
        version=version, upgrades=_upgrades(version, upgrades or {}, who), on_failed=follow_up_of(on_failed, who),
        result_ttl=_result_ttl(result_ttl, keep_result=keep_result, who=who), keep_result=keep_result,
        on_lost=_one_of(on_lost, ("retry", "fail"), f"{who}on_lost"),
        on_lease_lost=_one_of(on_lease_lost, ("stop", "finish"), f"{who}on_lease_lost"),
        resources=used, limits=_limits(name, concurrency, rate, limits, who), errors=error_rules(errors, who),
        dedup=dedup,
    )  # fmt: skip


def _memory(memory: Size | None, executor: Executor, who: str) -> int | None:
    if memory is not None and executor != "process":
        raise DeclarationError(f"{who}memory={memory!r} can only be held in a process of its own; add executor='process'")
    return None if memory is None else size(memory, f"{who}memory")


def _cost(cost: int, executor: Executor, who: str) -> int:
    if isinstance(cost, bool) or not isinstance(cost, int) or not 1 <= cost <= MOST_COST:
        raise DeclarationError(f"{who}cost={cost!r} must be a whole number of slots from 1 to {MOST_COST:,}")
    if cost > 1 and executor == "process":
        raise DeclarationError(f"{who}cost={cost}: a job in a child process takes a child and no slot; leave cost out")
    return cost


def _one_of(value: Any, allowed: tuple[str, str], name: str) -> Any:
    if value not in allowed:
        raise DeclarationError(f"{name}={value!r} must be {allowed[0]!r} or {allowed[1]!r}")
    return value


def _limits(name: str, concurrency: int | None, rate: Rates | None, more: Iterable[Limit], who: str) -> tuple[Limit, ...]:
    try:
        found = given(concurrency, rate, more)
        declared("task", name, found)
    except DeclarationError as error:
        raise DeclarationError(f"{who}{error.message}") from None
    return found


def _resources(names: Iterable[str], who: str) -> tuple[str, ...]:
    if isinstance(names, str):
        raise DeclarationError(f"{who}resources={names!r} must be a tuple of names; write resources=({names!r},)")
    used = tuple(sorted(set(names)))
    for name in used:
        check_name(name, f"{who}resource")
    return used


def check_name(name: Any, what: str) -> str:
    """Refuse what is no name.

    Raises:
        DeclarationError: with what would be right.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DeclarationError(f"{what} {name!r}: use letters, digits, '_', '.', ':' and '-', at most 200 in all")
    return name


def _check_parameters(  # noqa: PLR0917  positional: one caller
    fn: Callable[..., Any], signature: Signature, tenant: str | None, lock: Lock | None, dedup: Dedup | None, who: str
) -> None:
    wrong = "SyncContext" if inspect.iscoroutinefunction(fn) else "Context"
    if signature.context == wrong:
        right = "Context" if wrong == "SyncContext" else "SyncContext"
        kind = "an async function" if right == "Context" else "a plain function"
        raise DeclarationError(f"{who}{kind} takes a {right}, not a {wrong}")
    if not isinstance(dedup, Dedup | None):
        raise DeclarationError(f"{who}dedup={dedup!r} must be Dedup(…), such as Dedup(by=('employee_id',), until='done')")
    named = {
        "tenant": (tenant,) if tenant else (), "lock": lock.by if lock else (), "dedup": dedup.by if dedup else (),
    }  # fmt: skip
    for option, names in named.items():
        for parameter in names:
            if parameter not in signature.parameters:
                raise DeclarationError(
                    f"{who}{option}={parameter!r} is not a parameter of the function{_suggest(parameter, signature.parameters)}"
                )


def _former(name: str, aliases: Iterable[str], who: str) -> tuple[str, ...]:
    former = tuple(dict.fromkeys(aliases))
    for alias in former:
        if not isinstance(alias, str) or not _NAME.fullmatch(alias) or alias == name:
            raise DeclarationError(f"{who}alias {alias!r} must be another name that the task had before")
    return former


def _upgrades(version: int, upgrades: Mapping[int, Upgrade], who: str) -> Mapping[int, Upgrade]:
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise DeclarationError(f"{who}version={version!r} must be a whole number from 1 on")
    for old, upgrade in upgrades.items():
        if old not in range(1, version) or not callable(upgrade):
            raise DeclarationError(f"{who}upgrades[{old!r}] must be a function for a version below {version}")
    return dict(upgrades)


def declare_queues(more: Iterable[str]) -> tuple[str, ...]:
    """The standard queues and these.

    Raises:
        DeclarationError: a name would not do.
    """
    names = tuple(dict.fromkeys((*STANDARD_QUEUES, *more)))
    for name in names:
        check_name(name, "queue name")
    return names


def check_queue(spec: TaskSpec, queues: Iterable[str]) -> None:
    """Refuse a queue that is not declared, of the task or of its retries: a typo would be a queue that no worker serves.

    Raises:
        DeclarationError: with the nearest declared name.
    """
    queues = tuple(queues)
    for option, queue in (("", spec.queue), *(("retry: ", queue) for queue in retry_rules.queues_of(spec.retry))):
        if queue not in queues:
            raise DeclarationError(
                f"task {spec.name}: {option}queue {queue!r} is not declared{_suggest(queue, queues)};"
                f" declared are {', '.join(queues)}; add it by App(queues=(…, {queue!r}))"
            )


def module_name(fn: Callable[..., Any]) -> str:
    """The module a worker would import the function from; `python shop/tasks.py` makes it `__main__` otherwise."""
    module = fn.__module__
    if module != "__main__":
        return module
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else "__main__"


def _timeout(wanted: Duration, who: str) -> float:
    limit = seconds(wanted, f"{who}timeout")
    if limit <= 0:
        raise DeclarationError(f"{who}timeout={wanted!r} must be above zero; every attempt has a time limit")
    return limit


def _result_ttl(wanted: Duration | None, *, keep_result: bool, who: str) -> float | None:
    if wanted is None:
        return None
    if not keep_result:
        raise DeclarationError(f"{who}keep_result=False keeps no result, so result_ttl={wanted!r} has nothing to keep; give one")
    ttl = seconds(wanted, f"{who}result_ttl")
    if ttl <= 0:
        raise DeclarationError(f"{who}result_ttl={wanted!r} must be above zero; where no result is wanted say keep_result=False")
    return ttl


def _executor(fn: Callable[..., Any], wanted: str | None, who: str) -> Executor:
    natural: Executor = "async" if inspect.iscoroutinefunction(fn) else "thread"
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise DeclarationError(f"{who}a generator cannot be a task; return a value")
    if wanted is None or wanted == natural:
        return natural
    if wanted == "process":
        if "<locals>" in fn.__qualname__:
            raise DeclarationError(
                f"{who}executor='process' needs a function that another process can import: define it at the top of a module"
            )
        return "process"
    if wanted in ("async", "thread"):
        kind = "an async function runs on the loop" if natural == "async" else "a plain function would block the loop"
        raise DeclarationError(f"{who}executor={wanted!r} does not fit: {kind}")
    raise DeclarationError(f"{who}executor={wanted!r} is not known; there are 'async', 'thread' and 'process'")


def _suggest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""

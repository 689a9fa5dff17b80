"""What a running attempt may ask and say. The worker makes it; called directly, a task gets a local one."""

import inspect
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar, overload
from uuid import UUID

import orjson

from jobwell.core import log_fields
from jobwell.core.checkpoint import Keeper, LocalKeeper
from jobwell.core.duration import Duration, seconds
from jobwell.core.errors import DeclarationError
from jobwell.core.follow import Followed
from jobwell.core.holding import AsyncHolds, Holding, Holds, PlainHolds
from jobwell.core.ids import new_id
from jobwell.core.steps import Check, Step, Stepping, declared, key_of

T = TypeVar("T")


class BoundLogger(logging.LoggerAdapter[logging.Logger]):
    """A standard logger with fields of its own; `extra=` of a call comes on top."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Join both."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class ResourceCall(Protocol):
    """One use of a resource.

    Attributes:
        timeout: seconds that it may take: what was asked for, capped by what is left of the job's time.
    """

    timeout: float


class LocalCall:
    """The same in a task that is called directly: nothing is counted and nothing is stopped."""

    def __init__(self, timeout: float | None) -> None:
        self.timeout = float("inf") if timeout is None else timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass


Calling = Callable[[str, float | None], Any]


class _Attempt(Holds):
    """What both contexts share."""

    __slots__ = (
        "_began",
        "_calls",
        "_cancelled",
        "_deadline_in",
        "_holding",
        "_keeper",
        "_logger",
        "_meta",
        "_monotonic",
        "_stepped",
        "_steps",
        "attempt",
        "claim_id",
        "id",
        "queue",
        "task",
        "tenant",
    )

    def __init__(
        self,
        *,
        id: UUID,
        task: str,
        queue: str,
        tenant: str,
        attempt: int,
        deadline_in: float | None,
        monotonic: Callable[[], float],
        meta: str | None = None,
        calls: Calling | None = None,
        steps: Callable[[], Stepping] | None = None,
        holding: Callable[[], Holding] | None = None,
        claim_id: UUID | None = None,
    ) -> None:
        self.id = id
        self.claim_id = claim_id  # the fence of what this attempt writes; None where there is no worker
        self.task = task
        self.queue = queue
        self.tenant = tenant
        self.attempt = attempt
        self._deadline_in = deadline_in
        self._monotonic = monotonic
        self._began = monotonic()
        self._cancelled = False
        self._meta = meta
        self._calls = calls
        self._steps = steps
        self._holding = holding
        self._keeper: Keeper | None = None
        self._stepped: set[str] | None = None
        self._logger: BoundLogger | None = None

    @classmethod
    def local(cls, task: str) -> "Any":
        """A context for a plain call, outside any worker: attempt 1, no deadline."""
        return cls(id=new_id(), task=task, queue="", tenant="", attempt=1, deadline_in=None, monotonic=float)

    @property
    def idempotency_key(self) -> str:
        """Give it to outside calls: the same in every attempt of this job, and in a retry from the quarantine."""
        return str(self.id)

    def step_key(self, name: str) -> str:
        """The key of one step, `JOB:NAME`: as stable as `idempotency_key`, and another one for each outside call of the job.

        A function that a step calls gets it by itself where it has a parameter `idempotency_key`.
        """
        return key_of(self.id, name)

    def remaining(self) -> float | None:
        """Seconds until the job's deadline, never below 0; None where it has none."""
        if self._deadline_in is None:
            return None
        return max(0.0, self._deadline_in - (self._monotonic() - self._began))

    @property
    def followed(self) -> Followed:
        """How the jobs ended that this one followed: `send.after(report)`, or the members of its group."""
        return Followed.read(self._meta)

    @property
    def cancelled(self) -> bool:
        """Whether the attempt has been told to stop: its time limit, a shutdown, a lost lease.

        Async tasks are cancelled besides; a plain function cannot be, and should look here in its loops.
        """
        return self._cancelled

    @property
    def logger(self) -> "BoundLogger":
        """A standard logger whose records carry job, task, attempt, queue, tenant, and what the job was given by `correlate`."""
        if self._logger is None:
            carried = orjson.loads(self._meta) if self._meta else {}
            fields = log_fields.of_job(
                self.id, task=self.task, attempt=self.attempt, queue=self.queue, tenant=self.tenant, carried=carried
            )
            self._logger = BoundLogger(logging.getLogger(f"jobwell.task.{self.task}"), fields)
        return self._logger

    def _call(self, resource: str, timeout: Duration | None) -> Any:
        allowed = None if timeout is None else seconds(timeout, "timeout")
        return LocalCall(allowed) if self._calls is None else self._calls(resource, allowed)

    def _step(
        self, name: str, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, unknown: Any, compensate: Any, plain: bool
    ) -> Step:
        step = declared(self.id, name, fn, args, kwargs, unknown=unknown, compensate=compensate, plain=plain)
        self._stepped = self._stepped or set()
        if name in self._stepped:
            raise DeclarationError(
                f"the task {self.task} has made the step {name!r} in this attempt already, and a step is known by its name; give"
                f' each its own: ctx.step(f"{name}:{{id}}", …). It was not called'
            )
        self._stepped.add(name)
        return step

    def _kept(self) -> Keeper:
        if self._keeper is None:
            self._keeper = LocalKeeper() if self._holding is None else self._holding().keeper()
        return self._keeper

    def tell_to_stop(self) -> None:
        """For the worker: `cancelled` is true from now on."""
        self._cancelled = True


class Context(AsyncHolds, _Attempt):
    """The context of an async task: the first parameter annotated `Context` receives it."""

    __slots__ = ()

    def call(self, resource: str, timeout: Duration | None = None) -> AbstractAsyncContextManager[ResourceCall]:
        """Use a resource: `async with ctx.call("smtp", timeout="10s"): …`. How the block ends feeds the resource's breaker.

        Args:
            resource: that the task names in `resources=`.
            timeout: for the block: capped by what is left of the job's time limit and deadline, which is also the default.

        Raises:
            DeclarationError: the task does not name the resource.
            ResourceUnavailable: the breaker is open: not caught, it hands the job back, which spends no attempt.
            TimeoutError: the block took longer.
        """
        made: AbstractAsyncContextManager[ResourceCall] = self._call(resource, timeout)
        return made

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        unknown: Literal["repeat", "hold"] | Check = "repeat",
        compensate: Any = None,
        **kwargs: Any,
    ) -> T: ...

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[..., T],
        /,
        *args: Any,
        unknown: Literal["repeat", "hold"] | Check = "repeat",
        compensate: Any = None,
        **kwargs: Any,
    ) -> T: ...

    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        unknown: Literal["repeat", "hold"] | Check = "repeat",
        compensate: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Do a part of the job whose outcome is written down: `await ctx.step("mail", send, address)`.

        Before the call it is written down that it begins, and after it that it is done, with what it returned. A later attempt
        gets that, and the function is not called again. One that was begun, and is not known to be done, is never repeated
        without asking (docs/steps.md has the rules).

        Args:
            name: of the step, unique within the job. In a loop give each its own: f"mail:{id}".
            fn: the function, async or plain; a plain one runs on a thread.
            *args: its arguments.
            unknown: what becomes of it where its outcome is unknown. "repeat" (the default): it is called again, for what may
                be repeated. "hold": the job waits in the quarantine for a person to say. A function: it is called with the
                step's arguments, asks the outside system, and returns `Happened(result)`, `DidNotHappen()` or `CannotTell(why)`.
            compensate: a task with one parameter, which undoes the step: it gets what the step returned, as a job of its own,
                when the job is cancelled, given up, or raises `Compensate`; the last step first.
            **kwargs: its arguments by name.

        Returns:
            What the function returned, now or in an earlier attempt.

        Raises:
            DeclarationError: the name was used before in this attempt, or an option would not do. It was not called.
            Exception: what the function raised. Where that tells that nothing has happened, the next attempt calls it again.
        """
        step = self._step(name, fn, args, kwargs, unknown=unknown, compensate=compensate, plain=False)
        if self._steps is not None:
            return await self._steps().run(step)
        result = step.call(fn)
        return await result if inspect.isawaitable(result) else result


class SyncContext(PlainHolds, _Attempt):
    """The context of a plain task: the first parameter annotated `SyncContext` receives it."""

    __slots__ = ()

    def call(self, resource: str, timeout: Duration | None = None) -> AbstractContextManager[ResourceCall]:
        """Use a resource: `with ctx.call("smtp", timeout="10s") as call: smtplib.SMTP(host, timeout=call.timeout)`.

        A plain function cannot be interrupted: give `call.timeout` (seconds) to the library that makes the call.

        Args:
            resource: that the task names in `resources=`.
            timeout: capped by what is left of the job's time limit and deadline, which is also the default.

        Raises:
            DeclarationError: the task does not name the resource.
            ResourceUnavailable: the breaker is open: not caught, it hands the job back, which spends no attempt.
        """
        made: AbstractContextManager[ResourceCall] = self._call(resource, timeout)
        return made

    def step(
        self,
        name: str,
        fn: Callable[..., T],
        /,
        *args: Any,
        unknown: Literal["repeat", "hold"] | Check = "repeat",
        compensate: Any = None,
        **kwargs: Any,
    ) -> T:
        """Do a part of the job whose outcome is written down: `ctx.step("mail", send, address)`.

        Before the call it is written down that it begins, and after it that it is done, with what it returned. A later attempt
        gets that, and the function is not called again. One that was begun, and is not known to be done, is never repeated
        without asking (docs/steps.md has the rules).

        Args:
            name: of the step, unique within the job. In a loop give each its own: f"mail:{id}".
            fn: the function, a plain one.
            *args: its arguments.
            unknown: what becomes of it where its outcome is unknown. "repeat" (the default): it is called again, for what may
                be repeated. "hold": the job waits in the quarantine for a person to say. A function: it is called with the
                step's arguments, asks the outside system, and returns `Happened(result)`, `DidNotHappen()` or `CannotTell(why)`.
            compensate: a task with one parameter, which undoes the step: it gets what the step returned, as a job of its own,
                when the job is cancelled, given up, or raises `Compensate`; the last step first.
            **kwargs: its arguments by name.

        Returns:
            What the function returned, now or in an earlier attempt.

        Raises:
            DeclarationError: the name was used before in this attempt, or an option would not do. It was not called.
            Exception: what the function raised. Where that tells that nothing has happened, the next attempt calls it again.
        """
        step = self._step(name, fn, args, kwargs, unknown=unknown, compensate=compensate, plain=True)
        found: T = step.call(fn) if self._steps is None else self._steps().run_plain(step)
        return found

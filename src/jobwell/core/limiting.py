"""What an app declares about limits: resources, queues, tenants, and its tasks'."""

import difflib
from collections.abc import Iterable, Mapping

from jobwell.core.breaker import Breaker, Guard, check_budget
from jobwell.core.catalog import Catalog
from jobwell.core.errors import DeclarationError
from jobwell.core.failed import check_follow_up
from jobwell.core.limits import Declared, Limit, Rates, Tier, check_concurrency, declared, given, tenants
from jobwell.core.task import check_name


class Limiting:
    """Limits of an app. Values from code are what counts until an operator sets others (`jobwell limits set`)."""

    catalog: Catalog
    queues: tuple[str, ...]

    def __init__(self) -> None:
        self._resources: dict[str, tuple[Limit, ...]] = {}
        self._guards: dict[str, Guard | None] = {}
        self._queue_limits: dict[str, tuple[Limit, ...]] = {}
        self._tenants: list[Declared] = []

    def resource(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: Rates | None = None,
        limits: Iterable[Limit] = (),
        breaker: Breaker | None = None,
        retry_budget: float | None = None,
    ) -> None:
        """Declare a thing that must not be overloaded: `app.resource("sms-gateway", concurrency=5, rate="300/min")`.

        Tasks name it by `resources=("sms-gateway",)`. It can be held and limited by operators also when it is declared without
        a limit.

        Args:
            name: of the resource.
            concurrency: jobs that use it at once, in the whole fleet.
            rate: how often one may start: "10/s", or several windows: ("10/s", "1000/h"). No window ever holds more.
            limits: more of them, or for each host, process or tenant: `Limit(rate="1/s", per="tenant")`.
            breaker: closes the resource's gates while its calls fail; it is fed by `ctx.call(name)` in the tasks.
            retry_budget: retries of what failed in `ctx.call(name)`, for each first attempt: with 0.2 one in five. What is
                above it is put off, not lost; a few are always granted.

        Raises:
            DeclarationError: it is declared already in another way, or a value is out of range.
        """
        check_name(name, "resource")
        if breaker is not None and not isinstance(breaker, Breaker):
            raise DeclarationError(f"breaker={breaker!r} must be a Breaker, such as Breaker(failures=0.5, open='10s')")
        guard = Guard(breaker, check_budget(retry_budget)) if breaker is not None or retry_budget is not None else None
        self._declare(self._resources, "resource", name, given(concurrency, rate, limits))
        if self._guards.setdefault(name, guard) != guard:
            raise DeclarationError(f"resource {name!r} is declared twice, with different breakers or budgets")

    @property
    def guards(self) -> Mapping[str, Guard | None]:
        """Breaker and retry budget of each declared resource; None: it has neither."""
        return self._guards

    def limit_queue(
        self, queue: str, *, concurrency: int | None = None, rate: Rates | None = None, limits: Iterable[Limit] = ()
    ) -> None:
        """Limit a queue, fleet-wide: `app.limit_queue("reports", concurrency=4)`.

        Args:
            queue: a declared one.
            concurrency: its jobs at once.
            rate: how often one may start.
            limits: more of them, or for each host, process or tenant.

        Raises:
            DeclarationError: the queue is not declared, or limited already in another way; or a value is out of range.
        """
        if queue not in self.queues:
            near = difflib.get_close_matches(str(queue), self.queues, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise DeclarationError(f"queue {queue!r} is not declared{hint}; declared are {', '.join(self.queues)}")
        self._declare(self._queue_limits, "queue", queue, given(concurrency, rate, limits))

    def tenants(
        self,
        *,
        default: float | Tier = 1,
        weights: Mapping[str, float] | None = None,
        tiers: Mapping[str, Tier] | None = None,
        members: Mapping[str, str] | None = None,
        limits: Mapping[str, Limit] | None = None,
    ) -> None:
        """Say how tenants share: `app.tenants(default=1, weights={"acme": 3})`. Without it all have equal shares.

        Args:
            default: weight of a tenant that is not named, or a `Tier` with a quota for each of them.
            weights: of named tenants; one with 3 is served three times as often as one with 1, while both have work.
            tiers: classes with weight, concurrency and rate: `{"gold": Tier(weight=5, concurrency=20)}`.
            members: which tenant is of which tier.
            limits: quotas of named tenants: `{"acme": Limit(concurrency=10)}`.

        Guarantee: what some leave unused goes to the others; a tenant alone gets everything that its quota allows.

        Raises:
            DeclarationError: a weight is out of range, or a tier is not declared.
        """
        for name, tier in (tiers or {}).items():
            check_concurrency(tier.concurrency)
            check_name(name, "tier")
        self._tenants = tenants(default, weights or {}, tiers or {}, members or {}, limits or {})

    def limits_declared(self) -> list[Declared]:
        """Everything that the store is told about limits.

        Raises:
            DeclarationError: a task names a resource that is not declared.
        """
        rows = [row for name, limits in self._resources.items() for row in declared("resource", name, limits)]
        # A resource with a breaker always has a row: by it the claim knows that something may be closed.
        bare = {name for name, guard in self._guards.items() if guard is not None and guard.breaker is not None}
        bare -= {row.name for row in rows if row.per == "fleet"}
        rows += [Declared("resource", name) for name in sorted(bare)]
        rows += [row for name, limits in self._queue_limits.items() for row in declared("queue", name, limits)]
        for spec in self.catalog:
            check_follow_up(spec, self.catalog)
            for name in spec.resources:
                if name not in self._resources:
                    near = difflib.get_close_matches(name, self._resources, n=1)
                    hint = f" (did you mean {near[0]!r}?)" if near else ""
                    raise DeclarationError(
                        f"task {spec.name}: the resource {name!r} is not declared{hint};"
                        f" say app.resource({name!r}, concurrency=…)"
                    )
            rows += declared("task", spec.name, spec.limits)
        return [*rows, *self._tenants]

    @staticmethod
    def _declare(known: dict[str, tuple[Limit, ...]], kind: str, name: str, limits: tuple[Limit, ...]) -> None:
        declared("resource", name, limits)
        if known.setdefault(name, limits) != limits:
            raise DeclarationError(f"{kind} {name!r} is declared twice, with different limits")

"""The parts of a bulk operation, and where it is declared."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from jobwell.core.catalog import Catalog

if TYPE_CHECKING:
    from jobwell.client.task import Binding, Task

OPTIONS = {  # of a task, that a part may have too
    "queue", "priority", "timeout", "deadline", "retry", "owner", "resources", "concurrency", "rate", "limits", "errors", "cost",
    "on_lost", "on_lease_lost", "aliases",
}  # fmt: skip


@dataclass(eq=False)
class Part:
    """A preparation, a stage or a finish: the decorated function, with the task behind it. Called, it is the function itself."""

    operation: str
    kind: str
    name: str
    fn: Callable[..., Any]
    coroutine: bool
    chunk: int = 0
    room: int = 0
    after: "Part | None" = None
    condition: str = "any"
    task: "Task[Any, Any]" = None  # type: ignore[assignment]  # given in the next step, of which it is a part

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function, here and now."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.operation}.{self.name}>"


class Declares(Protocol):
    """Where it is declared: an app, or `Tasks()`; what it needs of them."""

    catalog: Catalog
    binding: "Binding"

    @property
    def task(self) -> Any:
        """The decorator."""

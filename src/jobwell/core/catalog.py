"""The catalog: all declared tasks of an application, by name."""

import difflib
from collections.abc import Iterator

from jobwell.core.errors import DeclarationError, NotFound
from jobwell.core.task import TaskSpec


class Catalog:
    """Tasks by name. A name is given once; the registry decides what can run, never a stored path."""

    def __init__(self) -> None:
        self._specs: dict[str, TaskSpec] = {}
        self._former: dict[str, TaskSpec] = {}

    def add(self, spec: TaskSpec) -> None:
        """Add a task.

        Raises:
            DeclarationError: the name is taken by another function.
        """
        for alias in spec.aliases:
            taken = self._specs.get(alias) or self._former.get(alias)
            if taken is not None and taken.fn is not spec.fn:
                raise DeclarationError(f"task {spec.name}: its alias {alias!r} belongs to the task {taken.name}")
        if spec.name in self._former and self._former[spec.name].fn is not spec.fn:
            raise DeclarationError(f"the name {spec.name!r} is an alias of the task {self._former[spec.name].name}")
        there = self._specs.get(spec.name)
        if there is not None and there.fn is not spec.fn:
            raise DeclarationError(
                f"two tasks have the name {spec.name!r} ({there.fn.__module__}.{there.fn.__qualname__} and"
                f" {spec.fn.__module__}.{spec.fn.__qualname__}); give one of them another name="
            )
        self._specs[spec.name] = spec
        self._former.update(dict.fromkeys(spec.aliases, spec))

    def get(self, name: str) -> TaskSpec | None:
        """The task of that name, or that had it before; or None."""
        return self._specs.get(name) or self._former.get(name)

    def __getitem__(self, name: str) -> TaskSpec:
        spec = self.get(name) if isinstance(name, str) else None
        if spec is None:
            near = difflib.get_close_matches(name, list(self._specs), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise NotFound(f"no task is called {name!r}{hint}")
        return spec

    def __iter__(self) -> Iterator[TaskSpec]:
        return iter(sorted(self._specs.values(), key=lambda spec: spec.name))

    def __len__(self) -> int:
        return len(self._specs)

    def __contains__(self, name: object) -> bool:
        return name in self._specs or name in self._former

    def check(self) -> None:
        """Resolve and build every signature.

        Raises:
            DeclarationError: of the first task that does not fit.
        """
        for spec in self:
            spec.signature.check()

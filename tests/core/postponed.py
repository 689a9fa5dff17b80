"""Tasks in a module with postponed annotations, where all types are texts at declaration."""

from __future__ import annotations

from typing import Any

import click
from pydantic import BaseModel

import jobwell
from jobwell import Context, SyncContext


async def plain(ctx: Context, x: int) -> None: ...


def sync(ctx: SyncContext, x: int) -> None: ...


async def qualified(ctx: jobwell.Context, x: int) -> None: ...


def foreign(ctx: click.Context) -> None: ...


def without(x: int) -> None: ...


def below(x: Below) -> None: ...


class Below(BaseModel):
    name: str


def task_of_local_models() -> Any:
    class Inner(BaseModel):
        n: int

    class Outer(BaseModel):
        inner: Inner

    def task(x: Any) -> None: ...

    task.__annotations__ = {"x": Outer}
    return task

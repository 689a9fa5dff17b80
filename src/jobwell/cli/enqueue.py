"""`jobwell jobs enqueue`."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from jobwell import settings as setting
from jobwell.cli.output import by_option, json_out, output_option, store_options
from jobwell.core.errors import InvalidArguments

if TYPE_CHECKING:  # imported when the command runs
    from jobwell.core.published import Published

Typed = tuple[str | None, tuple[str, ...]]


@click.command()
@click.argument("task")
@click.option("--args", "arguments", metavar="JSON", help="All arguments as one JSON object; '-' reads it from stdin.")
@click.option("--arg", "pairs", metavar="NAME=VALUE", multiple=True, help="One argument; give it again for each.")
@click.option("--queue", help="Another queue than the task's.")
@click.option("--priority", type=click.IntRange(-100, 100), help="Higher first (default: the task's).")
@click.option("--tenant", help="For whom (default: the parameter that the task names).")
@click.option("--run-after", metavar="WHEN", help="Not before: 10m, 2h, or 2030-01-31T08:00+05:00.")
@click.option("--deadline", metavar="DURATION", help="How long after being due it may wait and try (default: the task's).")
@click.option("--dedup-key", metavar="KEY", help="A key of yours in place of the parameters that the task's Dedup names.")
@click.option("--no-dedup", is_flag=True, help="A job of its own, whatever the task's Dedup says.")
@click.option("--app", metavar="MODULE:APP", help="Load this code and check the arguments in depth.")
@by_option
@output_option
@store_options
def enqueue(
    task: str,
    arguments: str | None,
    pairs: tuple[str, ...],
    app: str | None,
    by: str | None,
    output: str,
    database_url: str | None,
    schema: str | None,
    **more: Any,
) -> int:
    r"""Enqueue one job of TASK and print its id.

    Needs only a URL: the tasks are those that workers have published since they started. Names, required parameters and JSON
    are checked here. What lies deeper (the range of a number, the fields of an object) only the code knows: what does not fit
    is seen by the worker, and the job waits in the quarantine as 'invalid'. With --app the code is loaded, and all is checked
    before anything is stored.

    Dates, UUIDs, decimals and the like are given as JSON texts: "2030-01-31", "12.50". A VALUE of --arg is read as JSON, and as
    text where it is none or where the parameter takes texts.

    \b
    Examples:
      jobwell jobs enqueue hr.transfer --arg employee_id=7 --arg on=2030-01-31
      jobwell jobs enqueue hr.transfer --args '{"employee_id": 7, "on": "2030-01-31"}' --run-after 10m
      jobwell jobs enqueue hr.transfer --args - --app shop.jobs:app < arguments.json
    \b
    Exit codes: 3 nobody has published the task or knows the queue · 1 the arguments do not fit; nothing was enqueued
    """
    from jobwell.actions import enqueue as actions
    from jobwell.actions.actor import actor
    from jobwell.core import published
    from jobwell.core.job import Options
    from jobwell.store.database import Database

    queue = more.pop("queue")
    if more.pop("no_dedup"):
        if more["dedup_key"] is not None:
            raise click.UsageError("--no-dedup and --dedup-key contradict each other; nothing was enqueued")
        more["dedup"] = False
    options = Options(**more)
    if app:
        job, database = _from_code(
            app, task, queue, (arguments, pairs), options, {"database_url": database_url, "schema": schema}
        )
    else:
        database = Database(setting.load({"database_url": database_url, "schema": schema}))
        known = actions.known(database, task)
        if queue:
            actions.check_queue(database, queue)
        named = _named(arguments, pairs, known)
        job = published.make(known, named, options, queue, database.settings.payload_limit)
    found = actions.enqueue(database, job, options, by=actor(by))
    if output == "json":
        json_out({"id": found.id, "task": job.task, "queue": job.queue, "outcome": found.outcome})
    else:
        if not found.created:
            click.echo(f"{found.outcome}: job {found.id} of {found.task}, which is {found.state}, stands for it", err=True)
        click.echo(str(found.id))
    return 0


def _from_code(target: str, task: str, queue: str | None, typed: Typed, options: Any, given: dict[str, Any]) -> tuple[Any, Any]:
    from jobwell import services
    from jobwell.actions import enqueue as actions
    from jobwell.core import job as jobs
    from jobwell.core import published
    from jobwell.core.errors import NotFound

    app = services.load_app(target)
    app.load()
    app.override({name: value for name, value in given.items() if value is not None})
    spec = app.catalog[task]
    if queue and queue not in app.queues:
        raise NotFound(f"the app declares no queue {queue!r}; declared are {', '.join(app.queues)}")
    contract = published.read(task, published.publish(spec))
    named = actions.with_code(spec, _named(*typed, contract))
    job = jobs.make(spec, (), named, options, app.settings.payload_limit)
    return replace(job, queue=queue or job.queue), app.database


def _named(arguments: str | None, pairs: tuple[str, ...], known: "Published") -> dict[str, Any]:
    from jobwell.core import published

    named: dict[str, Any] = {}
    if arguments is not None:
        if arguments == "-":
            try:
                arguments = sys.stdin.buffer.read().decode()
            except UnicodeDecodeError:
                raise InvalidArguments("--args: what stdin gives is not UTF-8; nothing was enqueued") from None
        found = published.parse(arguments, "--args")
        if not isinstance(found, dict):
            raise InvalidArguments('--args: give one JSON object, such as {"employee_id": 7}; nothing was enqueued')
        named.update(found)
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--arg")
        if name in named:
            raise click.BadParameter(f"{name} is given twice", param_hint="--arg")
        shape = (known.schema or {}).get("properties", {}).get(name)
        named[name] = published.value_of(known.parameters.get(name), shape, text, name)
    return named

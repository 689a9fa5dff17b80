"""`jobwell worker` and `jobwell up`."""

import logging
import os
from typing import Any
from uuid import UUID

import click

from jobwell import settings as setting
from jobwell.cli import logs
from jobwell.cli.output import store_options


@click.command()
@click.argument("app", required=False)
@click.option("--processes", type=click.IntRange(1, 64), help="Worker processes.  [default: 1]")
@click.option("--slots", type=click.IntRange(1, 10_000), help="Jobs at once in each process.  [default: 100]")
@click.option("--queues", help="Comma-separated (default: all that the app declares).")
@click.option("--pool", "pools", multiple=True, metavar="NAME=QUEUES:SLOTS", help="Slots for some queues; once for each pool.")
@click.option(
    "--log", "log_form", type=click.Choice(setting.LOGS), help="Form of the log on stderr; none: the app's own.  [default: auto]"
)
@click.option("--strict-priority", is_flag=True, default=None, help="Lower priorities wait while a higher one has jobs.")
@click.option("--child", type=click.UUID, hidden=True)
@store_options
def worker(
    app: str | None,
    processes: int | None,
    slots: int | None,
    queues: str | None,
    pools: tuple[str, ...],
    log_form: str | None,
    strict_priority: bool | None,
    child: UUID | None,
    database_url: str | None,
    schema: str | None,
) -> int:
    r"""Work: claim jobs of APP (module:attribute) and run them, until SIGTERM or Ctrl-C.

    A supervisor starts the processes and starts again those that die. The first SIGTERM stops claiming and gives running
    jobs the grace to end; what has not ended is handed back without spending an attempt. The second one ends the grace.

    Pools share the slots of each process between queues (docs/pools.md): a,b by priority across them; a>b strictly in this order;
    a*3,b*1 by weights; 4..12 for 4 slots and up to 12 with what others leave idle; ;22:00-06:00=16;zone=Asia/Almaty by the clock.

    \b
    Examples:
      jobwell worker shop.jobs:app
      jobwell worker shop.jobs:app --pool fast=critical,notifications:20 --pool heavy=bulk:4..12
      jobwell worker shop.jobs:app --processes 2 --slots 50 --queues critical,default
    \b
    Exit codes: 0 drained · 1 a part of it failed for good · 3 the lease was lost · 78 a setting, the app or the tables are wrong
    """
    given = {"database_url": database_url, "schema": schema, "processes": processes, "slots": slots, "app": app, "queues": queues,
        "pools": pools or None, "log": log_form, "strict_priority": strict_priority}  # fmt: skip
    if child is not None:  # a password does not belong into a command line that everyone can see
        given["database_url"] = os.environ.get("JOBWELL_CHILD_URL") or database_url
    settings = setting.load(given)
    logs.configure(settings.log)
    if child is not None:
        return _child(settings, child, given)
    from jobwell import services

    options = ["--log", settings.log]
    for name in ("slots", "queues", "schema"):
        if given[name] is not None:
            options += [f"--{name.replace('_', '-')}", str(given[name])]
    if strict_priority:
        options += ["--strict-priority"]
    for pool in settings.pools if pools else ():
        options += ["--pool", str(pool)]
    target = _target(settings)
    slots = settings.all_slots
    total = settings.processes * slots
    each = f"{settings.processes} process(es) × {slots} slots"
    if settings.pools:
        each += f" ({' '.join(map(str, settings.pools))})"
    click.echo(f"starting {target}: {each} = {total} jobs at once; Ctrl-C ends it in good order", err=True)
    return services.supervise(settings, target, processes=settings.processes, options=options, url=database_url)


def _child(settings: setting.Settings, child: UUID, given: dict[str, Any]) -> int:
    from jobwell import services
    from jobwell.core.errors import DeclarationError, JobwellError, SchemaMismatch, SettingsError, StoreRefused

    try:
        app = services.load_app(_target(settings))
        # What the command line says goes before what the module says.
        named = ("database_url", "schema", "slots", "queues", "pools", "strict_priority")
        app.override({name: given[name] for name in named if given[name] is not None})
        return services.run_worker(app, worker=child)
    except (SettingsError, DeclarationError, SchemaMismatch, StoreRefused) as error:
        click.echo(f"jobwell: {error.message}", err=True)
        return 78
    except JobwellError as error:
        logging.getLogger("jobwell.worker").warning("cannot start: %s", error.message)
        return 75


def _target(settings: setting.Settings) -> str:
    from jobwell.core.errors import SettingsError

    if not settings.app:
        raise SettingsError("no app is named; say which, like `jobwell worker shop.jobs:app`, or set app in jobwell.toml")
    return settings.app


@click.command()
@click.argument("app", required=False)
@click.option("--processes", type=click.IntRange(1, 64), help="Worker processes.  [default: 1]")
@click.option("--slots", type=click.IntRange(1, 10_000), help="Jobs at once in each process.  [default: 100]")
@store_options
@click.pass_context
def up(
    ctx: click.Context, app: str | None, processes: int | None, slots: int | None, database_url: str | None, schema: str | None
) -> Any:
    r"""Everything at once, for development: migrate, then work.

    Without a database URL the embedded server is used, with its data in .jobwell/ beside the project.

    \b
    Examples:
      jobwell up shop.jobs:app
    """
    from jobwell.store import migrations
    from jobwell.store.database import Database

    settings = setting.load({"database_url": database_url, "schema": schema, "app": app})
    if not settings.database_url:
        database_url = "embedded"
        settings = setting.load({"database_url": database_url, "schema": schema, "app": app})
    _target(settings)
    database = Database(settings)
    if database_url == "embedded" or settings.database_url == "embedded":
        from jobwell import embedded

        click.echo(f"the embedded server keeps its data in {embedded.data_folder()}", err=True)
    migrations.migrate(database, say=lambda step: click.echo(f"migrate: {step}", err=True))
    return ctx.invoke(
        worker, app=app, processes=processes, slots=slots, queues=None, pools=(), log_form=None, strict_priority=None, child=None,
        database_url=database_url, schema=schema,
    )  # fmt: skip

"""`jobwell quarantine …`."""

from typing import Any

import click

from jobwell import settings as setting
from jobwell.cli import report, subscriptions, triage
from jobwell.cli.acting import act, common_options
from jobwell.cli.output import csv_out, json_out, output_option, rows_option, store_options, table

REASONS = triage.REASONS


def _filters(command: Any) -> Any:
    for option in (
        click.option("--tenant"),
        click.option("--task"),
        click.option("--queue"),
        click.option("--reason", type=REASONS),
    ):
        command = option(command)
    return command


class Pace(click.ParamType[float]):
    """Jobs in a second, from 10/s, 30/m or 500/h."""

    name = "n/s"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        if isinstance(value, float):
            return value
        count, _, unit = str(value).partition("/")
        seconds = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}.get(unit)
        if seconds is None or not count.isdecimal() or not 0 < int(count) <= 100_000:
            self.fail(f"{value!r} is no pace; write 10/s, 30/m or 500/h", param, ctx)
        return int(count) / seconds


PACE = Pace()


@click.group()
def quarantine() -> None:
    """Failed jobs that wait for a human. Needs only a URL."""


for command in (
    report.report, triage.groups, triage.set_group,
    subscriptions.subscribe, subscriptions.subscriptions, subscriptions.unsubscribe,
):  # fmt: skip
    quarantine.add_command(command)


@quarantine.command("list")
@_filters
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", type=click.UUID, help="Older than this job: the next page.")
@rows_option
@store_options
def list_quarantine(output: str, database_url: str | None, schema: str | None, **wanted: Any) -> int:
    r"""List failed jobs, newest first. All filters given must fit.

    \b
    Examples:
      jobwell quarantine list --reason exhausted --task hr.transfer
      jobwell quarantine list -o csv > failed.csv
    \b
    Exit codes: 3 nobody knows the queue or task that a filter names
    """
    from jobwell.actions.queues import check_filters
    from jobwell.store import reads
    from jobwell.store.database import Database

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    check_filters(database, queue=wanted["queue"], task=wanted["task"])
    rows = database.run(reads.quarantine(database.statements, reads.Filter(**wanted)))
    if output == "json":
        json_out(rows)
        return 0
    if output == "csv":
        csv_out(rows, reads.QUARANTINE_COLUMNS)
        return 0
    columns = ("id", "reason", "task", "tenant", "code", "error_type", "origin", "message", "ended_at")
    filtered = any(wanted[name] for name in ("reason", "queue", "task", "tenant"))
    table("", rows, columns, "none match" if filtered else "the quarantine is empty")
    if len(rows) == wanted["limit"]:
        click.echo(f"… more: --before {rows[-1]['id']}", err=True)
    return 0


@quarantine.command()
@click.argument("job")
@output_option
@store_options
@click.pass_context
def show(ctx: click.Context, job: str, output: str, database_url: str | None, schema: str | None) -> Any:
    r"""Everything about one failed JOB. The beginning of its id is enough.

    \b
    Examples:
      jobwell quarantine show 019a22
    \b
    Exit codes: 3 no job's id begins so, or several do
    """
    from jobwell.cli.jobs import show as show_job

    return ctx.invoke(show_job, job=job, output=output, database_url=database_url, schema=schema)


@quarantine.command()
@click.argument("jobs", nargs=-1)
@click.option("--reason", type=REASONS, help="Only those that failed for this reason.")
@click.option("--group", "--fingerprint", "fingerprint", metavar="GROUP", help="Only those of this group: `quarantine groups`.")
@click.option("--pace", type=PACE, help="So many at a time: 10/s, 30/m, 500/h. Each waits as scheduled for its turn.")
@click.option("--args", "edited", metavar="JSON", help="Arguments by name in place of the stored ones, which are kept.")
@click.option("--app", metavar="MODULE:APP", help="Load this code and check the values of --args in depth.")
@common_options
def retry(jobs: tuple[str, ...], edited: str | None, **given: Any) -> int:
    r"""Put failed JOBS back to ready: a new attempt budget and deadline, the history kept, the action audited.

    Name jobs by id (the beginning is enough), or choose by filters, or say --all; the exact number is shown and confirmed
    before anything happens. What fails again meanwhile is not taken twice. Needs only a URL.

    --args edits each of them: all are looked at first, and where one does not take the arguments, nothing is changed. Values are
    plain JSON; with --app they are checked by the task's own code.

    \b
    Examples:
      jobwell quarantine retry 019a4f 019a50
      jobwell quarantine retry --task shop.mail.invoice --reason exhausted --why "the server is back"
      jobwell quarantine retry --group 5d2c6f --pace 10/s
      jobwell quarantine retry 019a4f --args '{"email": "ann@example.org"}' --why "a typing error"
      jobwell quarantine retry --group 5d2c6f --args '{"server": "mail2"}' --app shop.jobs:app
    \b
    Exit codes: 1 a job does not take the arguments; nothing was changed · 3 none of the jobs named exists, or nobody knows the
    queue, task or group · 4 some are not in the quarantine
    """
    from jobwell.core.errors import NOT_CHANGED
    from jobwell.core.published import parse

    args = None if edited is None else parse(edited, "--args", NOT_CHANGED)
    if args is not None and (not isinstance(args, dict) or not args):
        raise click.UsageError('--args takes a JSON object with at least one argument: \'{"email": "ann@example.org"}\'')
    if given["app"] and not args:
        raise click.UsageError("--app checks what --args gives; give both, or neither")
    return act("quarantine.retry", ("retry", "retried", "ready again"), jobs, args=args, **given)


@quarantine.command()
@click.argument("jobs", nargs=-1)
@click.option("--reason", type=REASONS, help="Only those that failed for this reason.")
@click.option("--group", "--fingerprint", "fingerprint", metavar="GROUP", help="Only those of this group: `quarantine groups`.")
@common_options
def discard(jobs: tuple[str, ...], **given: Any) -> int:
    r"""Give failed JOBS up for good. --why is compulsory: it is audited, and stands with each job.

    Named by id, or chosen by filters as for retry. They count as finished, can be looked at until the retention is over, and
    cannot be retried any more. Needs only a URL.

    \b
    Examples:
      jobwell quarantine discard 019a4f --why "sent by hand"
      jobwell quarantine discard --group 5d2c6f --why "the campaign is over"
    \b
    Exit codes: 3 none of the jobs named exists, or nobody knows the queue, task or group · 4 some are not in the quarantine
    """
    if not (given["why"] or "").strip():
        raise click.UsageError("say --why: whoever looks at these jobs later will ask")
    return act("quarantine.discard", ("discard", "discarded", "discarded"), jobs, **given)

"""`jobwell jobs cancel`, `jobwell jobs retry` and `jobwell jobs priority`."""

from typing import Any

import click

from jobwell.cli.acting import act, common_options


@click.command()
@click.argument("jobs", nargs=-1)
@click.option("--state", type=click.Choice(["waiting", "scheduled", "ready", "running", "retrying"]), help="Only in this state.")
@common_options
def cancel(jobs: tuple[str, ...], **given: Any) -> int:
    r"""Cancel JOBS: what waits is over at once, what runs is asked to stop. Needs only a URL.

    Name jobs by id (the beginning is enough), or choose by filters, or say --all; the exact number is shown and confirmed
    before anything happens.

    A running async task is cancelled where it awaits. A plain function cannot be stopped: it sees `ctx.cancelled`, and its
    time limit holds. A task that comes to its end all the same has succeeded, and is told so. A cancelled job is final.

    Many jobs are one action that goes on piece by piece; should this command die, a worker goes on with it. Ctrl-C and
    SIGTERM stop the action: the rest is not touched.

    \b
    Examples:
      jobwell jobs cancel 019a4f --why "sent by mistake"
      jobwell jobs cancel --task shop.mail.newsletter --state scheduled --why "wrong date"
    \b
    Exit codes: 3 none of the jobs named exists, or nobody knows the queue or task · 4 some could not be cancelled
    """
    return act("jobs.cancel", ("cancel", "cancelled", "cancelled"), jobs, **given)


@click.command()
@click.argument("jobs", nargs=-1)
@click.option("--failed", is_flag=True, help="Failed ones, from the quarantine (as `jobwell quarantine retry`).")
@common_options
def retry(jobs: tuple[str, ...], failed: bool, **given: Any) -> int:
    r"""Retry JOBS now: those that wait for another attempt at once, and failed ones from the quarantine. Needs only a URL.

    Named by id, each is taken wherever it stands. With filters or --all, those that wait for another attempt are meant, or
    with --failed those in the quarantine. What has succeeded or was cancelled is final: enqueue a new job instead.

    \b
    Examples:
      jobwell jobs retry 019a4f
      jobwell jobs retry --queue notifications --why "the gateway is back"
      jobwell jobs retry --failed --task shop.mail.invoice
    \b
    Exit codes: 3 none of the jobs named exists, or nobody knows the queue or task · 4 some could not be retried
    """
    return act("quarantine.retry" if failed else "jobs.retry", ("retry", "retried", "ready again"), jobs, **given)


@click.command()
@click.argument("jobs", nargs=-1)
@click.option("--to", type=click.IntRange(-100, 100), required=True, metavar="PRIORITY", help="-100 to 100, higher first.")
@click.option("--state", type=click.Choice(["waiting", "scheduled", "ready", "retrying"]), help="Only in this state.")
@common_options
def priority(jobs: tuple[str, ...], to: int, **given: Any) -> int:
    r"""Give JOBS that wait another priority: waiting, scheduled, ready and retrying ones. Needs only a URL.

    Name jobs by id (the beginning is enough), or choose by filters, or say --all; the exact number is shown and confirmed
    before anything happens. It holds from the next claim on, and for all attempts to come. Within a priority jobs keep their
    order. A running job is refused: a priority counts only while a job waits.

    Many jobs are one action, as with `jobs cancel`.

    \b
    Examples:
      jobwell jobs priority 019a4f --to 90 --why "the customer is on the phone"
      jobwell jobs priority --task shop.mail.newsletter --to -50 --why "not before the invoices"
    \b
    Exit codes: 3 none of the jobs named exists, or nobody knows the queue or task · 4 some are running, or over
    """
    words = (f"give priority {to} to", "changed", f"wait with priority {to} now")
    return act("jobs.priority", words, jobs, to=to, **given)

"""`jobwell jobs cancel` and `jobwell jobs retry`."""

from typing import Any

import click

from jobwell.cli.acting import act, common_options


@click.command()
@click.argument("jobs", nargs=-1)
@click.option("--state", type=click.Choice(["scheduled", "ready", "running", "retrying"]), help="Only in this state.")
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

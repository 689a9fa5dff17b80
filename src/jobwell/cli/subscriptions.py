"""`jobwell quarantine subscribe`, `subscriptions` and `unsubscribe`: reports that are sent by themselves."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import time
from typing import Any

import click

from jobwell import settings as setting
from jobwell.cli.output import by_option, facts, json_out, output_option, say, store_options, table
from jobwell.cli.report import wanted_options
from jobwell.cli.when import TIME_OF_DAY
from jobwell.core.report import BY
from jobwell.core.subscription import FORMS, Subscription

COLUMNS = ("id", "state", "what", "when", "to", "form", "made_by", "last_sent", "next", "last_error")
SAID_ALREADY = ("filters", "daily", "zone", "threshold", "within", "next_daily", "look_at")  # in `what`, `when` and `next`
LOG_COLUMNS = ("at", "kind", "since", "until", "jobs", "recipients", "error")
why_option = click.option("--why", metavar="TEXT", help="The reason, kept with the action.")


class TimeOfDay(click.ParamType[time]):
    """Hours and minutes."""

    name = "hh:mm"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> time:
        """Read it."""
        if isinstance(value, time):
            return value
        found = TIME_OF_DAY.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no time of the day; write it like 08:00", param, ctx)
        return time(int(found[1]), int(found[2]))


class Seconds(click.ParamType[float]):
    """A duration."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        from jobwell.core.duration import seconds
        from jobwell.core.errors import DeclarationError

        try:
            return seconds(value)
        except DeclarationError as error:
            self.fail(error.message, param, ctx)


@click.command()
@wanted_options
@click.option("--all", "everything", is_flag=True, help="All failed jobs, where no filter is given.")
@click.option("--group-by", type=click.Choice(BY), default="code", show_default=True, help="What the groups have in common.")
@click.option(
    "--to", "recipients", metavar="WHO", multiple=True, required=True, help="An address, or what a hook knows; repeat it."
)
@click.option("--daily", type=TimeOfDay(), help="Each day at this time: what has failed since the last one.")
@click.option(
    "--zone", metavar="NAME", default="UTC", show_default=True, help="Of --daily and of the times in the report: Asia/Almaty."
)
@click.option("--threshold", type=click.IntRange(1, 1_000_000), metavar="N", help="When so many have failed within --within.")
@click.option("--within", type=Seconds(), help="At most once in this time: 15m, 1h.")
@click.option("--even-empty", is_flag=True, help="The daily one also where nothing has failed.")
@click.option(
    "-f", "--format", "form", type=click.Choice(FORMS), default="csv", show_default=True, help="Of the list that is attached."
)
@why_option
@by_option
@output_option
@store_options
def subscribe(
    output: str,
    database_url: str | None,
    schema: str | None,
    by: str | None,
    everything: bool,
    recipients: tuple[str, ...],
    **given: Any,
) -> int:
    r"""Have reports on failed jobs sent by themselves: daily, at a threshold, or both.

    Workers send them: one at least must have the setting smtp_url, or a hook (`@app.on_report`). `subscriptions test` tries it.

    \b
    Examples:
      jobwell quarantine subscribe --owner hr-it --to hr-it@example.org --daily 08:00 --zone Asia/Almaty
      jobwell quarantine subscribe --queue mail --to ops@example.org --to slack:ops --threshold 50 --within 1h -f xlsx
    \b
    Exit codes: 3 nobody knows the owner, queue, task or group
    """
    from jobwell.actions import subscriptions as actions
    from jobwell.actions.actor import actor
    from jobwell.actions.queues import check_filters
    from jobwell.core.report import Wanted

    filters = {name: given.pop(name) for name in Wanted().filters()}
    if everything == any(value is not None for value in filters.values()):
        raise click.UsageError("give a filter such as --owner, or say --all; one of the two")
    if (given["threshold"] is None) != (given["within"] is None):
        raise click.UsageError("--threshold and --within belong together: so many failures within so long")
    if given["threshold"] is None and given["daily"] is None:
        raise click.UsageError("say when: --daily 08:00, or --threshold 50 --within 1h, or both")
    database = _database(database_url, schema)
    check_filters(database, queue=filters["queue"], task=filters["task"])
    wanted = Wanted(group_by=given.pop("group_by"), **filters)
    made = actions.add(database, wanted, recipients=recipients, by=actor(by), **given)
    if output == "json":
        json_out(_data(made))
    else:
        say(f"subscription {made.id}: {made.what()}, {made.when()}, to {', '.join(made.recipients)}")
        say(f"try it: jobwell quarantine subscriptions test {made.id}")
    return 0


@click.group(invoke_without_command=True)
@output_option
@store_options
@click.pass_context
def subscriptions(ctx: click.Context, output: str, database_url: str | None, schema: str | None) -> int:
    r"""List reports that are sent by themselves: to whom, when, how far each is, and what went wrong last.

    overdue: no worker that can send has looked for five minutes. failing: the last tries did not go through.

    \b
    Examples:
      jobwell quarantine subscriptions
      jobwell quarantine subscriptions test 3
    """
    from jobwell.actions import subscriptions as actions

    if ctx.invoked_subcommand is not None:
        return 0
    rows = [_data(each) for each in actions.listed(_database(database_url, schema))]
    if output == "json":
        json_out(rows)
    else:
        table("", rows, COLUMNS, "there are none; `jobwell quarantine subscribe` makes one")
    return 0


@subscriptions.command()
@click.argument("subscription", type=int)
@output_option
@store_options
def show(subscription: int, output: str, database_url: str | None, schema: str | None) -> int:
    r"""One SUBSCRIPTION by its number, and what was sent for it lately.

    \b
    Examples:
      jobwell quarantine subscriptions show 3
    \b
    Exit codes: 3 there is none of this number
    """
    from jobwell.actions import subscriptions as actions

    database = _database(database_url, schema)
    row, sent = _data(actions.one(database, subscription)), actions.log(database, subscription)
    if output == "json":
        json_out(row | {"sent": sent})
        return 0
    shown = ((name.replace("_", " "), value) for name, value in row.items() if name not in SAID_ALREADY)
    facts((name, value) for name, value in shown if value is not None and value != [])
    say("")
    table("Sent", sent, LOG_COLUMNS, "nothing was sent so far")
    return 0


@subscriptions.command()
@click.argument("subscription", type=int)
@by_option
@output_option
@store_options
def test(subscription: int, by: str | None, output: str, database_url: str | None, schema: str | None) -> int:
    r"""Have a worker send SUBSCRIPTION now, with what has failed in the last day. Its next report is as if this had not been.

    \b
    Examples:
      jobwell quarantine subscriptions test 3
    \b
    Exit codes: 1 it did not go through · 3 there is none of this number · 4 no worker that can send has taken it up
    """
    from jobwell.actions import subscriptions as actions
    from jobwell.actions.actor import actor

    row = actions.try_out(
        _database(database_url, schema), subscription, by=actor(by), told=lambda what: say(f"… {what}", err=True)
    )
    if output == "json":
        json_out(row)
    elif row["error"]:
        say(f"not sent, or not to all: {row['error']}", err=True)
    else:
        say(f"sent to {', '.join(row['recipients'])}: {row['jobs']:,} failed job(s)")
    return 1 if row["error"] else 0


def _turning(name: str, done: str, manual: str) -> click.Command:
    @click.command(name, help=manual)
    @click.argument("subscription", type=int)
    @why_option
    @by_option
    @output_option
    @store_options
    def turn(
        subscription: int, why: str | None, by: str | None, output: str, database_url: str | None, schema: str | None
    ) -> int:
        from jobwell.actions import subscriptions as actions
        from jobwell.actions.actor import actor

        verb: Callable[..., Subscription] = {"pause": actions.pause, "resume": actions.resume, "unsubscribe": actions.remove}[
            name
        ]
        sub = verb(_database(database_url, schema), subscription, by=actor(by), why=why)
        if output == "json":
            json_out({"id": sub.id, "done": done})
        else:
            say(f"subscription {sub.id} {done}: {sub.what()}, {sub.when()}, to {', '.join(sub.recipients)}")
        return 0

    return turn


pause = _turning("pause", "is paused", """Send nothing for SUBSCRIPTION until it is resumed.

    \b
    Examples:
      jobwell quarantine subscriptions pause 3 --why "a holiday"
    \b
    Exit codes: 3 there is none of this number · 4 it is paused already
    """)  # fmt: skip
resume = _turning("resume", "goes on", """Let SUBSCRIPTION go on. The next daily report has what failed meanwhile.

    \b
    Examples:
      jobwell quarantine subscriptions resume 3
    \b
    Exit codes: 3 there is none of this number · 4 it is not paused
    """)  # fmt: skip
unsubscribe = _turning("unsubscribe", "has ended", """End SUBSCRIPTION: nothing more is sent for it.

    \b
    Examples:
      jobwell quarantine unsubscribe 3 --why "hr-it is another team now"
    \b
    Exit codes: 3 there is none of this number
    """)  # fmt: skip
for command in (pause, resume):
    subscriptions.add_command(command)


def _data(sub: Subscription) -> dict[str, Any]:
    """As rows and programs have it."""
    data = asdict(sub)
    for name in ("wanted", "recipients", "done", "pending", "now"):
        data.pop(name)
    waiting = sub.look_at if sub.failures else sub.next_daily
    return {
        "id": data.pop("id"), "state": sub.state, "what": sub.what(), "when": sub.when(), "to": list(sub.recipients),
        "filters": sub.wanted.given(), "group_by": sub.wanted.group_by, **data,
        "daily": sub.daily and f"{sub.daily:%H:%M}", "next": None if sub.paused_at else waiting,
        "pending": sub.pending and sub.pending.kind, "pending_has": list(sub.done),
    }  # fmt: skip


def _database(database_url: str | None, schema: str | None) -> Any:
    from jobwell.store.database import Database

    return Database(setting.load({"database_url": database_url, "schema": schema}))

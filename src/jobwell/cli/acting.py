"""What the commands that change jobs share: choose, preview, confirm, act, report."""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import click

from jobwell import settings as setting
from jobwell.cli.output import by_option, json_out, output_option, say, store_options

Words = tuple[str, str, str]
SHOWN = 20  # refusals in words; -o json has all


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """By what many jobs are chosen, and how it is asked and told."""
    for option in (
        store_options,
        output_option,
        by_option,
        click.option("--why", metavar="TEXT", help="The reason: for the audit and for whoever looks at the job."),
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--all", "everything", is_flag=True, help="All of them."),
        click.option("--tenant", help="Only of this tenant."),
        click.option("--task", help="Only of this task."),
        click.option("--queue", help="Only in this queue."),
    ):
        command = option(command)
    return command


def act(
    verb: Any,
    words: Words,
    jobs: Sequence[str],
    *,
    everything: bool,
    yes: bool,
    by: str | None,
    why: str | None,
    output: str,
    database_url: str | None,
    schema: str | None,
    to: int | None = None,
    pace: float | None = None,
    args: Mapping[str, Any] | None = None,
    app: str | None = None,
    **filters: Any,
) -> int:
    """Do one verb to the jobs named by id (or its beginning), or to all that the filters choose.

    `words` name it, as in ("retry", "retried", "ready again"). `to` is a priority to give, `pace` how many jobs a second go
    back, `args` are arguments to edit, `app` names the code by which they are checked. The rest are those of `common_options`.
    """
    from jobwell.actions import jobs as actions
    from jobwell.actions import triage
    from jobwell.actions.actor import actor
    from jobwell.actions.queues import check_filters
    from jobwell.core.filters import Selection
    from jobwell.core.ids import new_id

    filtered = any(value is not None for value in filters.values())
    if bool(jobs) + filtered + everything != 1:
        raise click.UsageError("name jobs, or give filters, or say --all; one of the three")
    database, code = _store(app, {"database_url": database_url, "schema": schema})
    if jobs and (pace or args):
        done = triage.retry(database, _ids(database, jobs), by=actor(by), why=why, pace=pace, args=args, code=code)
        return _report(done, words, output)
    if jobs:
        done = actions.named(database, verb, _ids(database, jobs), by=actor(by), why=why, to=to)
        return _report(done, words, output)
    check_filters(database, queue=filters.get("queue"), task=filters.get("task"))
    if filters.get("fingerprint") is not None:
        filters["fingerprint"] = triage.named(database, filters["fingerprint"])
    total, chosen = actions.preview(database, verb, Selection(**filters))
    if not total:
        return _report(actions.Done(0), words, output)
    if args:
        actions.check_edit(database, chosen, args, code)  # before anybody is asked
    held = actions.held(database, chosen) if verb == "quarantine.retry" else 0
    _confirm(words[0], total, args, held, yes=yes)
    action = new_id()
    try:
        with stoppable(), click.progressbar(length=total, label=words[0], file=sys.stderr, hidden=total < 1000) as bar:
            done = actions.many(
                database, verb, chosen, total=total, by=actor(by), why=why, told=bar.update, id=action, to=to, pace=pace,
                args=args, code=code,
            )  # fmt: skip
    except (KeyboardInterrupt, click.Abort):
        return stop(database, action, by=by)
    return _report(done, words, output, kept=total - done.touched if held and done.finished else 0)


def _confirm(word: str, total: int, args: Mapping[str, Any] | None, held: int, *, yes: bool) -> None:
    if yes:
        return
    what = f"{total:,} job(s)" + (f" with other arguments ({', '.join(sorted(args))})" if args else "")
    what += f" ({held:,} of them will be refused: equal jobs stand for them)" if held else ""
    if not sys.stdin.isatty():
        raise click.UsageError(f"this would {word} {what}; say --yes to do it without being asked")
    click.confirm(f"{word} {what}?", abort=True, err=True)


def _store(target: str | None, given: Mapping[str, Any]) -> tuple[Any, Any]:
    """The store, and what knows the code of tasks: nobody, where no app is named."""
    from jobwell.store.database import Database
    from jobwell.store.edits import nobodys

    if target is None:
        return Database(setting.load(given)), nobodys
    from jobwell import services

    app = services.load_app(target)
    app.load()
    app.override({name: value for name, value in given.items() if value is not None})
    return app.database, app.catalog.get


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM ends what is done here as Ctrl-C does."""
    kept = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, kept)


def stop(database: Any, action: UUID, *, by: str | None) -> int:
    """Whoever stops the command means the action: without this a worker would do the rest. Tells it, and gives the exit code."""
    from jobwell.actions import jobs as actions
    from jobwell.actions.actor import actor
    from jobwell.core.errors import Conflict, JobwellError, NotFound

    try:
        with contextlib.suppress(NotFound, Conflict), stoppable():  # not begun, or at its end
            actions.stop(database, action, by=actor(by))
        found = actions.progress(database, action)
    except (JobwellError, KeyboardInterrupt) as error:
        cause = f" ({error.message})" if isinstance(error, JobwellError) else ""
        say(
            f"\nstopped here, but the action could not be stopped{cause}: 15 s after its last piece a worker goes on with it;"
            f" `jobwell actions stop {action}` ends it",
            err=True,
        )
        return 130
    if found is None:
        say("\nstopped; nothing was touched", err=True)
    elif found[2] == "stopped":
        say(f"\nstopped after {found[0]:,} of {found[1]:,}; the rest was not touched", err=True)
    else:
        say(f"\nit was at its end before it could be stopped: {found[0]:,} of {found[1]:,} are done", err=True)
    return 130


def _ids(database: Any, jobs: Sequence[str]) -> list[Any]:
    from jobwell.cli.jobs import _id

    with database.connect("actions") as conn, database.telling():
        return [_id(conn, database, job) for job in jobs]


def _report(done: Any, words: Words, output: str, *, kept: int = 0) -> int:
    code = 0
    if kept > 0:
        say(f"{kept:,} stay in the quarantine; `jobwell dedup list` names the jobs that stand for them", err=True)
    if done.refused:
        missing = all(reason.startswith("there is no such job") for reason in done.refused.values())
        code = 3 if missing else 4
    if output == "json":
        json_out({
            words[1]: done.touched - done.asked, "asked": done.asked, "action": done.action, "finished": done.finished,
            "refused": [{"job": job, "reason": reason} for job, reason in done.refused.items()],
        })  # fmt: skip
        return code
    click.echo(f"{done.touched - done.asked:,} job(s) {words[2]}" + _asked(done.asked))
    if not done.finished:
        click.echo(f"action {done.action} goes on in another process: `jobwell actions list` shows it", err=True)
    for job, reason in list(done.refused.items())[:SHOWN]:
        click.echo(f"not {job}: {reason}", err=True)
    if len(done.refused) > SHOWN:
        click.echo(f"… and {len(done.refused) - SHOWN:,} more; -o json has all", err=True)
    return code


def _asked(count: int) -> str:
    if not count:
        return ""
    return f"; {count:,} running: their workers stop them within about a second, a plain function when it looks"

"""`jobwell demo`: the HR department's case on real input."""

from importlib.util import find_spec

import click

from jobwell import settings as setting
from jobwell.cli.output import console, json_out, output_option, store_options
from jobwell.core.errors import SettingsError
from jobwell.demo.people import PEOPLE

NEEDED = ("aiosmtpd", "aiosmtplib")


@click.command()
@click.option("--people", type=click.IntRange(1, PEOPLE), default=PEOPLE, show_default=True, help="How many are transferred.")
@click.option("--items", type=click.IntRange(1, 100_000_000), help="Instead: a run of so many items that cost next to nothing.")
@click.option("--processes", type=click.IntRange(1, 16), default=2, show_default=True, help="Worker processes.")
@click.option("--kill", is_flag=True, help="Kill a worker process by SIGKILL in the middle.")
@click.option("--keep", is_flag=True, help="Leave the tables and the mail for looking around.")
@output_option
@store_options
def demo(
    people: int,
    items: int | None,
    processes: int,
    *,
    kill: bool,
    keep: bool,
    output: str,
    database_url: str | None,
    schema: str | None,
) -> int:
    """Transfer 8,000 people as a run, tell each of them by mail once, and balance the books.

    The run ends with errors: some addresses are wrong. A second file corrects them, and only what failed is tried again.

    Real processes, a real mail server, a real database: the one of JOBWELL_DATABASE_URL or, where none is set, an embedded
    PostgreSQL. All happens in schemas of its own beside the configured one, which are removed at the end.
    Exit code 0 only if the books balance.

    With --items N it is a run of N items that cost next to nothing, streamed in while the first of them are done: a million take
    bounded memory. A thousandth of them fails, and is tried again.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise SettingsError(f"the demo needs {' and '.join(missing)}; install jobwell[demo]")
    from rich.console import Console

    from jobwell.cli import run_card
    from jobwell.demo import report, scenario
    from jobwell.demo.many import Counted
    from jobwell.demo.many import show as show_many
    from jobwell.demo.progress import progress

    if kill and items:
        raise click.UsageError("--kill goes with people, not with --items")
    if kill and people < scenario.FEWEST_TO_KILL:
        raise click.BadParameter(f"with --kill give at least --people {scenario.FEWEST_TO_KILL}", param_hint="--people")
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    shown = console() if output == "table" else errors if errors.is_terminal else None
    options = scenario.Options(people=people, processes=processes, kill=kill, keep=keep, items=items or 0)
    with progress(shown, run_card.drawn) as steps:
        books = scenario.run(setting.load({"database_url": database_url, "schema": schema}), options, steps, errors.print)
    if output == "json":
        json_out(books.as_json())
        for problem in getattr(books, "problems", ()):
            errors.print(f"not balanced: {problem}")
    elif isinstance(books, Counted):
        show_many(console(), books)
    else:
        report.show(console(), books)
    return 0 if books.balanced else 1

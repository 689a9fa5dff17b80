"""`jobwell demo`: the HR department's case on real input."""

from importlib.util import find_spec
from typing import Literal

import click
import orjson
from rich.console import Console

from jobwell import settings as setting
from jobwell.core.errors import SettingsError
from jobwell.demo.people import PEOPLE

NEEDED = ("aiosmtpd", "aiosmtplib")


@click.command()
@click.option("--people", type=click.IntRange(1, PEOPLE), default=PEOPLE, show_default=True, help="How many are transferred.")
@click.option("--processes", type=click.IntRange(1, 16), default=2, show_default=True, help="Worker processes.")
@click.option("--kill", is_flag=True, help="Kill a worker process by SIGKILL in the middle.")
@click.option("--keep", is_flag=True, help="Leave the tables and the mail for looking around.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print the books.")
@click.pass_context
def demo(
    context: click.Context, people: int, processes: int, *, kill: bool, keep: bool, output: Literal["table", "json"]
) -> None:
    """Transfer thousands of people, tell each of them by mail once, and balance the books.

    Works in schemas of its own, in JOBWELL_DATABASE_URL or, where none is set, in an embedded PostgreSQL.
    Exit code 0 only if the books balance.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise SettingsError(f"the demo needs {' and '.join(missing)}; install jobwell[demo]")
    from jobwell.demo import report, scenario
    from jobwell.demo.progress import progress

    if kill and people < scenario.FEWEST_TO_KILL:
        raise click.BadParameter(f"with --kill give at least --people {scenario.FEWEST_TO_KILL}", param_hint="--people")
    settings = setting.load()
    errors = Console(stderr=True)
    console = Console() if output == "table" else errors if errors.is_terminal else None
    with progress(console) as shown:
        options = scenario.Options(people=people, processes=processes, kill=kill, keep=keep)
        books = scenario.run(settings, options, shown, lambda words: errors.print(words, highlight=False, soft_wrap=True))
    if output == "json":
        click.echo(orjson.dumps(books.as_json()))
        for problem in books.problems:
            errors.print(f"not balanced: {problem}", highlight=False)
    else:
        report.show(Console(), books)
    context.exit(0 if books.balanced else 1)

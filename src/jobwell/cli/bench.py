"""`jobwell bench`."""

import click

from jobwell import settings as setting
from jobwell.cli.output import facts, json_out, output_option

SCENARIOS = click.Choice(["drain", "drain-2", "enqueue-bulk", "latency"])


@click.command()
@click.argument("scenario", type=SCENARIOS)
@click.option("--jobs", type=click.IntRange(10, 10_000_000), help="How many (default: the scenario's own number).")
@click.option("--repeat", type=click.IntRange(1, 20), default=1, show_default=True, help="Runs; JSON is one object for each.")
@output_option
@click.option("--database-url", metavar="URL", help="postgresql://… or 'embedded' (default: JOBWELL_DATABASE_URL).")
def bench(scenario: str, jobs: int | None, repeat: int, output: str, database_url: str | None) -> int:
    r"""Measure, on a throw-away schema, beside the bare SQL loop of the same shape in the same run.

    \b
    drain          no-op async jobs, one worker process
    drain-2        the same with two
    enqueue-bulk   enqueue_many against a bare COPY of the same rows
    latency        from the call of enqueue to the first line of the task, worker idle
    """
    from jobwell.lab.bench import measure

    settings = setting.load({"database_url": database_url})
    for _ in range(repeat):
        result = measure(settings, scenario, jobs=jobs, say=lambda line: click.echo(f"… {line}", err=True))
        if output == "json":
            json_out(result.as_dict())
        else:
            facts((name.replace("_", " "), value) for name, value in result.as_dict().items() if value is not None)
    return 0

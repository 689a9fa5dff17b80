"""`jobwell bench`."""

import click

from jobwell import settings as setting
from jobwell.cli.output import json_out, output_option, table

SCENARIOS = (
    "drain", "drain-2", "enqueue-bulk", "enqueue-bulk-dedup", "enqueue-single", "enqueue-single-wake", "enqueue-single-async",
    "latency", "io", "lanes", "bounds", "memory", "scale", "pinned", "storm",
)  # fmt: skip
HELP = """\
Measure this machine with its database, each scenario beside something to compare it with, in the same run.
The number is how many jobs, unless --jobs says otherwise.

\b
drain                    60,000  no-op async jobs through one worker process, against the bare SQL loop
drain-2                  60,000  the same through two
enqueue-bulk            100,000  enqueue_many, against a bare COPY of the same rows
enqueue-bulk --dedup    100,000  the same of jobs with keys, against those without, by turns
enqueue-single           10,000  enqueue one by one, against a bare INSERT and its commit
enqueue-single-wake       5,000  the same while a worker rests, so that waking it is paid
enqueue-single-async     10,000  the same with aenqueue, no worker
latency                     200  from the call of enqueue to the first line of the task, worker idle
io                       20,000  jobs that wait 50 ms on 100 slots, against 2,000 a second
lanes                    60,000  the drain shared by ten tenants, with a limit and a rate on everything, against the plain one
bounds                    3,000  how much two workers use of a limit (20 at once) and a rate (200 a second), and the most they do
memory                  200,000  what a worker takes, at rest and over all its jobs (--jobs 1000000 for a million)
scale                 1,000,000  JOBS ready, JOBS scheduled, 2 × JOBS finished, 2,000 tenants, against an empty table;
                                 takes some minutes and gigabytes
pinned                   20,000  the rate while another connection holds a snapshot open (--seconds 600 for ten minutes)
storm                    10,000  jobs for a dependency that is down for two minutes (--seconds) and answers 503 with
                                 Retry-After, behind a breaker, against growing pauses alone; takes some ten minutes

Everything happens in a schema jobwell_bench of its own, for pinned in a database jobwell_bench_pinned; both are
dropped at the end, also after Ctrl-C. What somebody else has made under such a name is refused and left alone. One
benchmark at a time runs in a database; a second one waits.

Where there is a target it stands beside the figure with ✓ or ✗; a target that is missed is no error, the exit code is
0. With -o json: the runs, their summary (median, lowest, highest) and the targets as one object. What goes on is told
on stderr. Ratios hold on any machine; compare other figures only between runs on the same machine at rest.
"""


@click.command(help=HELP, short_help="Measure this machine with its database.")
@click.argument("scenario", type=click.Choice(SCENARIOS), metavar="SCENARIO")
@click.option("--jobs", type=click.IntRange(10, 10_000_000), help="How many (default: see the list).")
@click.option(
    "--seconds", type=click.FloatRange(1, 86_400), help="pinned: how long the snapshot is held (60); storm: the outage (120)."
)
@click.option("--limits", is_flag=True, help="With a limit and a rate on everything, never reached: what they cost.")
@click.option("--dedup", is_flag=True, help="enqueue-bulk: of jobs with keys, against the same without.")
@click.option("--repeat", type=click.IntRange(1, 20), default=1, show_default=True, help="Runs; medians with lowest and highest.")
@output_option
@click.option("--database-url", metavar="URL", help="postgresql://… or 'embedded' (default: JOBWELL_DATABASE_URL).")
def bench(
    scenario: str,
    jobs: int | None,
    seconds: float | None,
    limits: bool,
    dedup: bool,
    repeat: int,
    output: str,
    database_url: str | None,
) -> int:
    """Measure; the manual is `HELP`."""
    from jobwell.lab.bench.result import report, rows
    from jobwell.lab.bench.scenarios import SCENARIOS as KNOWN
    from jobwell.lab.bench.scenarios import measure

    if dedup and scenario != "enqueue-bulk":
        raise click.UsageError("--dedup goes with enqueue-bulk")
    scenario += "-dedup" if dedup else ""
    if seconds is not None and not KNOWN[scenario].lasts:
        raise click.UsageError(
            f"{scenario} ends when its jobs are done, so --seconds says nothing there; it is for pinned and storm"
        )
    settings = setting.load({"database_url": database_url})
    runs = []
    for number in range(repeat):
        if repeat > 1:
            click.echo(f"… run {number + 1} of {repeat}", err=True)
        runs.append(measure(settings, scenario, jobs=jobs, seconds=seconds, limits=limits, say=_say))
    if output == "json":
        json_out(report(runs))
        return 0
    value = ("median", "lowest", "highest") if repeat > 1 else ("median",)
    lines = rows(runs)
    columns = ("figure", *value, *(("target", "met") if any("target" in line for line in lines) else ()))
    if repeat == 1:
        lines = [{**line, "value": line["median"]} for line in lines]
        columns = tuple("value" if column == "median" else column for column in columns)
    times = f", {repeat} runs" if repeat > 1 else ""
    click.echo(f"{scenario}, {runs[0].jobs:,} jobs{times}, {runs[0].server}")  # a title of the table would fold to its width
    table("", lines, columns, "nothing was measured")
    return 0


def _say(line: str) -> None:
    click.echo(f"… {line}", err=True)

"""`python -m jobwell.lab.chaos --seed 7 --minutes 3 -o json`."""

import json
import logging
import signal
import sys
from dataclasses import asdict
from types import FrameType
from typing import Any

import click

from jobwell.core.errors import JobwellError
from jobwell.lab.chaos.run import Report, chaos


@click.command()
@click.option("--seed", type=int, default=7, show_default=True, help="Decides what goes wrong and when, and the mix of jobs.")
@click.option("--minutes", type=click.FloatRange(0.1, 600), default=3, show_default=True, help="For how long.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form of the verdict."
)
def main(seed: int, minutes: float, output: str) -> None:
    """Run a fleet under seeded faults on a private server, and check that nothing was lost and nothing finished twice.

    Exit code 0: every promise was kept; 1: one was broken, or the run broke; 130: interrupted.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # the faults say it
    try:
        report = chaos(seed, minutes, lambda line: click.echo(f"… {line}", err=True))
    except KeyboardInterrupt:
        click.echo("interrupted; everything that was started is ended", err=True)
        sys.exit(130)
    except (JobwellError, TimeoutError) as error:
        click.echo(f"the run broke: {error}", err=True)
        sys.exit(1)
    click.echo(json.dumps(asdict(report)) if output == "json" else _text(report))
    sys.exit(0 if report.ok else 1)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _text(report: Report) -> str:
    said: dict[str, Any] = asdict(report)
    findings = said.pop("findings")
    lines = [f"{name.replace('_', ' '):16} {value}" for name, value in said.items() if value is not None]
    return "\n".join(lines + [f"{each['kind']}: job {each['job']}: {each['what']}" for each in findings])


if __name__ == "__main__":
    main()

"""`jobwell jobs why`."""

import click

from jobwell import settings as setting
from jobwell.cli.output import json_out, rows_option, say, store_options


@click.command()
@click.argument("job")
@rows_option
@store_options
def why(job: str, output: str, database_url: str | None, schema: str | None) -> int:
    r"""Why does JOB not run? Each reason that holds, with what to do. The beginning of its id is enough.

    Needs only a URL. Counts stop at 10,000. How long those in front take is reckoned from what has ended in the last 5 minutes.

    \b
    Codes in JSON and CSV:
      not_due, due, retrying             it waits for its time
      follows, follows_failed            it waits for another job to end, or for one in the quarantine
      paused                             its queue, or all of them, is held
      task_held, resource_held,
      tenant_held                        its task, something that it uses, or its tenant is held
      no_worker, queue_unserved,
      task_unknown                       nobody is there that could run it
      lock_held, lock_order, lock_rate   another job holds its lock key, goes first, or was just there
      limit_full, limit_zero             as many run as a limit allows: which, and by which jobs
      rate                               a rate lets nothing in: which, and until when
      slots_busy, slots_none,
      children_busy, memory_high,
      behind, next                       it waits for its turn
      deadline_passed                    it has waited too long and fails when it is claimed
      running, worker_gone, cancelling   it runs, or what ran it is gone
      succeeded, cancelled, failed_…     it is over
    \b
    Examples:
      jobwell jobs why 019a22
      jobwell jobs why 019a22 -o json
    """
    from jobwell.cli.jobs import _id
    from jobwell.cli.output import csv_out
    from jobwell.core.why import explain
    from jobwell.store import why as store
    from jobwell.store.database import Database
    from jobwell.store.statements import run

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    with database.connect("jobs") as conn, database.telling():
        facts = run(conn, store.facts(database.statements, _id(conn, database, job)))
    rows = [{"code": reason.code, "sentence": reason.sentence} for reason in explain(facts)]
    if output == "json":
        json_out(
            {"id": facts.id, "state": facts.state, "task": facts.task, "queue": facts.queue, "at": facts.now, "because": rows}
        )
    elif output == "csv":
        csv_out(rows, ("code", "sentence"))
    else:
        say(f"{facts.id}  {facts.task}  {facts.state}")
        for row in rows:
            say(f"  {row['sentence']}")
    return 0

"""One run: a server, a network, a fleet, producers; the faults of the plan; then peace, and the verdict."""

import contextlib
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from jobwell.actions import queues
from jobwell.lab.chaos.faults import BY, Faults
from jobwell.lab.chaos.fleet import PROCESSES, Fleet
from jobwell.lab.chaos.plan import plan
from jobwell.lab.chaos.producers import TROUBLE, Producers
from jobwell.lab.chaos.proxy import Network
from jobwell.lab.chaos.server import Server
from jobwell.lab.chaos.statements import statements
from jobwell.lab.chaos.tasks import app
from jobwell.store import control, migrations
from jobwell.store.history import Tables, tables
from jobwell.store.statements import run as run_program
from jobwell.testing.evidence import Mark, Put, read
from jobwell.testing.history import KINDS, Verdict, check

SUPERVISORS = 2
DRAIN = 240.0  # seconds for what is left after the faults
SHOWN = 50
Say = Callable[[str], None]
Prepare = Callable[["psycopg.Connection[Any]"], None]


@dataclass(kw_only=True)
class Report:
    """What a run found."""

    seed: int
    minutes: float
    jobs: int
    kills: int
    stops: int
    restarts: int
    backend_kills: int
    stalls: int
    lost: int
    double_finished: int
    overlapping: int
    unexplained: int
    ok: bool
    states: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    zombies: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    findings: list[dict[str, str]] = field(default_factory=list)
    folder: str | None = None


@dataclass(frozen=True)
class Evidence:
    """What is left of a run: for the checker, and for whoever looks into a failure."""

    tables: Tables
    marks: list[Mark]
    puts: list[Put]
    faults: Counter[str]


class Run:
    """The parts of a run, and its folder.

    Args:
        seed: decides what happens and when, and what is enqueued.
        seconds: for how long.
        say: told of the progress.
        prepare: does something to the migrated database before anybody uses it.
    """

    def __init__(self, seed: int, seconds: float, say: Say, prepare: Prepare) -> None:
        self.random = Random(seed)  # noqa: S311
        self.seconds = seconds
        self.say = say
        self._prepare = prepare
        self.folder = Path(tempfile.mkdtemp(prefix=f"jobwell-chaos-{seed}-"))
        self.folder.chmod(0o711)  # as root, another account runs the server and must get through

    def play(self) -> "Evidence":
        """All of it. Everything that was started is ended, however this ends."""
        with contextlib.ExitStack() as stack:
            server = Server(self.folder / "server")
            stack.callback(server.stop)
            network = Network(server.socket, SUPERVISORS + 1)
            stack.callback(network.close)
            *urls, own = (server.through(proxy.port) for proxy in network.proxies)
            fleet = Fleet(urls, server.url, self.folder)
            stack.callback(fleet.end, 5)
            producers = Producers(own, self.random.randrange(2**32))
            stack.callback(app.close)
            migrations.migrate(app.database)
            with server.connect() as conn:
                conn.execute(statements()["make"])
                self._prepare(conn)
            fleet.tend()
            self._wait(lambda: self._ask(server, "workers")[0] >= SUPERVISORS * PROCESSES, 60, fleet, "the workers come up")
            faults = Faults(server, network, fleet, producers, self.say)
            try:
                self._disturb(server, fleet, producers, faults)
            finally:
                producers.stop()
                faults.heal()
            self._drain(server, fleet)
            fleet.end(20)
            return Evidence(*_read(server), producers.puts(), faults.done)

    def _disturb(self, server: Server, fleet: Fleet, producers: Producers, faults: Faults) -> None:
        planned = plan(self.random, self.seconds)
        self.say(f"{len(planned)} faults in {self.seconds:.0f} s; logs are in {self.folder}")
        producers.start()
        began = told = time.monotonic()
        while (now := time.monotonic() - began) < self.seconds:
            while planned and planned[0].at <= now:
                faults.begin(planned.pop(0))
            fleet.tend()
            if now - (told - began) > 10:
                told = time.monotonic()
                self.say(f"{now:5.0f} s: {len(producers.puts()):,} jobs enqueued, {sum(faults.done.values())} faults")
            time.sleep(0.05)

    def _drain(self, server: Server, fleet: Fleet) -> None:
        """Everything is well again: what is left must come to its end."""
        self.say("healed; what is left is done")
        self._wait(_resumed, 30, fleet, "the queues go on")
        fleet.end(10)
        fleet.ending = False
        retried = time.monotonic()

        def empty() -> bool:
            nonlocal retried
            left = self._ask(server, "left")
            if time.monotonic() - retried > 3:  # the longest delays are for losses in a row
                retried = time.monotonic()
                with server.connect() as conn:
                    ids = [row[0] for row in conn.execute(statements()["waiting"])]
                app.database.run(control.run_now(app.database.statements, ids))
                self.say(f"{left[0]:,} jobs are left")
            return not left[0] and not left[1]

        with contextlib.suppress(TimeoutError):  # then the checker names what is left
            self._wait(empty, DRAIN, fleet, "everything is done")

    def _wait(self, condition: Callable[[], bool], seconds: float, fleet: Fleet, what: str) -> None:
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                raise TimeoutError(f"not within {seconds:.0f} s: {what}; see {self.folder}")
            fleet.tend()
            time.sleep(0.1)

    @staticmethod
    def _ask(server: Server, name: str) -> tuple[Any, ...]:
        with server.connect() as conn:
            return conn.execute(statements()[name]).fetchone() or ()


def chaos(seed: int, minutes: float, say: Say, prepare: Prepare = lambda _: None) -> Report:
    """Play a run and judge it. Its folder stays only where the verdict is bad, with logs and a dump of the tables.

    Args:
        seed: the same gives the same faults at the same times, and the same mix of jobs; what meets what is up to the machine.
        minutes: for how long faults happen; the drain comes after.
        say: told of the progress.
        prepare: as for `Run`; a test breaks a promise here and sees it found.

    Raises:
        JobwellError, TimeoutError: the run itself broke; its folder stays.
    """
    run = Run(seed, minutes * 60, say, prepare)
    kept = True
    try:
        evidence = run.play()
        verdict = check(read(evidence.tables, puts=evidence.puts, marks=evidence.marks))
        report = _report(seed, minutes, verdict, evidence.faults)
        kept = not verdict.ok
        if kept:
            _dump(run.folder, evidence, report)
            report.folder = str(run.folder)
    except KeyboardInterrupt:
        kept = False
        raise
    else:
        return report
    finally:
        if kept:
            say(f"logs and tables are in {run.folder}")
        else:
            shutil.rmtree(run.folder, ignore_errors=True)


def _read(server: Server) -> tuple[Tables, list[Mark]]:
    with server.connect() as conn:
        conn.execute(statements()["consistent"])
        found = run_program(conn, tables(app.database.statements))
        marks = [Mark(*row) for row in conn.execute(statements()["marks"])]
    return found, marks


def _resumed() -> bool:
    try:
        queues.resume(app.database, [], by=BY, everything=True)
    except TROUBLE:
        return False
    return True


def _report(seed: int, minutes: float, verdict: Verdict, faults: Counter[str]) -> Report:
    def happened(*kinds: str) -> int:
        return sum(count for kind, count in faults.items() if kind in kinds)

    counts: dict[str, Any] = {kind: verdict.count(kind) for kind in KINDS}
    return Report(
        seed=seed, minutes=minutes, jobs=verdict.jobs,
        kills=happened("worker kill", "child kill", "supervisor kill", "worker term", "supervisor term", "late outcome"),
        stops=happened("worker stop", "worker long stop", "child stop", "supervisor stop"),
        restarts=happened("server fast restart", "server immediate restart"), backend_kills=happened("backends"),
        stalls=happened("stall", "long stall", "cut"), **counts, ok=verdict.ok, states=verdict.states,
        outcomes=verdict.outcomes, zombies=verdict.zombies, faults=dict(sorted(faults.items())),
        findings=[{"kind": f.kind, "job": str(f.job), "what": f.what} for f in verdict.findings[:SHOWN]],
    )  # fmt: skip


def _dump(folder: Path, evidence: Evidence, report: Report) -> None:
    """Everything that the verdict was made of, a JSON row a line."""
    parts = {**vars(evidence.tables), "marks": map(astuple, evidence.marks), "puts": map(astuple, evidence.puts)}
    for name, rows in parts.items():
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row, default=str) + "\n")
    (folder / "report.json").write_text(json.dumps(asdict(report), indent=1), encoding="utf-8")

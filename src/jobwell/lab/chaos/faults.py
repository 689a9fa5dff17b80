"""Makes the faults of a plan happen, each on a thread of its own, and heals them."""

import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from uuid import UUID

import psutil
import psycopg

from jobwell.actions import jobs, queues
from jobwell.core.errors import JobwellError
from jobwell.lab.chaos.fleet import Fleet
from jobwell.lab.chaos.plan import Fault
from jobwell.lab.chaos.producers import Producers
from jobwell.lab.chaos.proxy import Network
from jobwell.lab.chaos.server import Server
from jobwell.lab.chaos.statements import statements
from jobwell.lab.chaos.tasks import PAUSABLE, app
from jobwell.store import control

BY = "chaos"
OUTCOMES_HELD = 0.5  # seconds: long enough for some attempt to end


class Faults:
    """What can go wrong in a run.

    Attributes:
        done: how often each kind happened: where there was nothing to do it to, it does not count.
    """

    def __init__(self, server: Server, network: Network, fleet: Fleet, producers: Producers, say: Callable[[str], None]) -> None:
        self._server = server
        self._network = network
        self._fleet = fleet
        self._producers = producers
        self._say = say
        self._healed = threading.Event()
        self._threads: list[threading.Thread] = []
        self.done: Counter[str] = Counter()

    def begin(self, fault: Fault) -> None:
        """Let it happen."""
        thread = threading.Thread(target=self._happen, args=(fault,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def heal(self) -> None:
        """End all that goes on."""
        self._healed.set()
        for thread in self._threads:
            thread.join(90)
            if thread.is_alive():
                raise JobwellError("a fault does not come to its end")
        for proxy in self._network.proxies:
            proxy.heal()

    def _happen(self, fault: Fault) -> None:
        try:
            happened = self._do(fault)
        except (JobwellError, psycopg.Error, psutil.Error, OSError) as error:
            self._say(f"{fault.at:7.1f} s  {fault.kind}: {str(error).splitlines()[0][:100]}")
            return
        if happened:
            self.done[fault.kind] += happened

    def _do(self, fault: Fault) -> int:
        what, _, how = fault.kind.partition(" ")
        match what:
            case "worker" | "child" | "supervisor":
                return self._signal(fault, what, how)
            case "server":
                self._server.restart(immediate=how.startswith("immediate"), down=fault.seconds)
                return 1
            case "backends":
                return self._end_backends(fault)
            case "stall" | "long" | "cut":
                return self._disturb(fault)
            case "late":
                return self._kill_before_outcome(fault)
            case "pause":
                return self._pause(fault)
            case "cancel":
                return jobs.named(app.database, "jobs.cancel", self._some(fault, 12), by=BY, why="drawn").touched
            case _:
                return len(app.database.run(control.run_now(app.database.statements, self._some(fault, 200))))

    def _signal(self, fault: Fault, what: str, how: str) -> int:
        find = {"worker": self._fleet.worker, "child": self._fleet.child, "supervisor": self._fleet.supervisor}[what]
        process = find(fault.target)
        if process is None:
            return 0
        if how in ("kill", "term"):
            process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
            return 1
        process.send_signal(signal.SIGSTOP)
        self._healed.wait(fault.seconds)
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)
        return 1

    def _end_backends(self, fault: Fault) -> int:
        random, count, until = Random(fault.seed), 0, time.monotonic() + fault.seconds  # noqa: S311
        with self._server.connect() as conn:
            while time.monotonic() < until:
                pids = [row[0] for row in conn.execute(statements()["backends"])]
                if pids:
                    conn.execute(statements()["terminate"], {"pid": random.choice(pids)})
                    count += 1
                if self._healed.wait(0.5):
                    break
        return count

    def _disturb(self, fault: Fault) -> int:
        proxy = self._network.proxies[fault.target % len(self._network.proxies)]
        if fault.kind == "cut":
            proxy.cut()
        else:
            proxy.stall()
        self._healed.wait(fault.seconds)
        proxy.heal()
        return 1

    def _kill_before_outcome(self, fault: Fault) -> int:
        """A worker dies while its outcomes are on their way; they arrive when its jobs were taken back, or have begun again."""
        number = fault.target % self._fleet.size
        proxy, worker = self._network.proxies[number], self._fleet.worker(fault.target, supervisor=number)
        if worker is None:
            return 0
        proxy.hold_outcomes()
        try:
            self._healed.wait(OUTCOMES_HELD)
            worker.send_signal(signal.SIGKILL)
            self._healed.wait(fault.seconds)
        finally:
            proxy.heal()
        return 1

    def _pause(self, fault: Fault) -> int:
        queue = PAUSABLE[fault.target % len(PAUSABLE)]
        queues.pause(app.database, [queue], by=BY, why="drawn")
        self._healed.wait(fault.seconds)
        queues.resume(app.database, [queue], by=BY)
        return 1

    def _some(self, fault: Fault, most: int) -> list[UUID]:
        """A few jobs, mostly of the latest."""
        random, recent = Random(fault.seed), list(self._producers.recent)  # noqa: S311
        latest = recent[-random.choice((50, 500, 3000)) :]
        return random.sample(latest, min(len(latest), random.randint(1, most)))

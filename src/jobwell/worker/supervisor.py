"""The supervisor: starts N worker processes, restarts those that die, and passes signals on.

It imports no user code. Each child gets a fresh worker id from here, so that when a child is seen to die its jobs can be
taken back at once instead of at the end of its lease.
"""

import contextlib
import logging
import math
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psutil

from jobwell.core.ids import new_id
from jobwell.runtime.systemd import Systemd
from jobwell.worker.pulse import VARIABLE, Listener

log = logging.getLogger("jobwell.supervisor")

CLEAN = (0, -signal.SIGTERM, -signal.SIGKILL)  # told to stop while still importing, it dies of the signal: nothing was claimed
OWN_CODES = (2, 3, 4, 5, 7, 75, 78)  # with which a worker ends by itself: nothing has crashed
ASKED = 6  # an operator has ended it: it is not started again
EXIT_CONFIG = 78  # the child could not start for a reason that a restart does not mend
LATE = 30.0  # seconds for which a loop of a ready worker may be without a good round
REAP_EVERY = 5.0
PROVEN = 5.0
STAGGER = 0.1  # seconds between the first starts: the server forks three processes for each
STEADY = 60.0  # seconds of life after which a death is not part of a series
LONGEST_BACKOFF = 30.0
KILL_AFTER = 5.0  # seconds beyond the grace


@dataclass
class Child:
    """One place for a process."""

    number: int
    process: "subprocess.Popen[bytes] | None" = None
    worker: UUID | None = None
    started: float = 0.0
    deaths: int = 0
    start_at: float = 0.0
    listener: Listener | None = None
    renewed: float = 0.0
    ended_by_us: bool = False


class Supervisor:
    """Runs until told to stop.

    Args:
        command: makes the command line of a child with this worker id.
        processes: how many.
        grace: seconds that a child may take to drain.
        environ: more variables for the children.
        died: told of a dead child's worker id, to take its jobs back, and how it died; None: it ended by itself, or by us.
        lease: seconds; a child that gives no sign of life for half of it, and lives, has its lease renewed from here.
        renew: renews the lease of a worker.
        hang: seconds without a sign of life after which a child is killed.
    """

    def __init__(
        self,
        command: Callable[[UUID], Sequence[str]],
        processes: int,
        grace: float,
        died: Callable[[UUID, str | None], None],
        environ: Mapping[str, str],
        *,
        lease: float,
        renew: Callable[[UUID], None],
        hang: float,
    ) -> None:
        self._command = command
        self._grace = grace
        self._died = died
        self._lease = lease
        self._renew = renew
        self._hang = hang
        self._environ = {**os.environ, **environ, "JOBWELL_CHILD": "1"}
        now = time.monotonic()
        self._children = [Child(number, start_at=now + number * STAGGER) for number in range(processes)]
        self._events = threading.Event()
        self._systemd = Systemd()
        self._ready = False
        self._reap_at = 0.0
        self._signals = 0
        self._passed = 0
        self._code = 0
        self._proven = False  # some child has lived: a wrong setting met later is not a reason to stop the others

    def signal(self, *_: object) -> None:
        """A stop signal arrived; the second one ends the grace."""
        self._signals += 1
        self._systemd.tell("STOPPING=1")
        self._events.set()

    def report(self) -> dict[str, Any]:
        """What is known of the processes: `healthy` while they live and give signs, `ready` while one of them claims."""
        found = []
        for child in self._children:
            process, listener = child.process, child.listener
            lives = process is not None and listener is not None
            silent = round(listener.silent, 1) if listener is not None and lives else None
            found.append({"process": child.number + 1, "pid": process.pid if process else None, "silent": silent,
                          "deaths": child.deaths, **(listener.told if listener is not None and lives else {})})  # fmt: skip
        living = [each for each in found if each["silent"] is not None]
        working = [each for each in living if "worker" in each and not each["draining"] and each["silent"] < self._hang]
        return {
            "healthy": all(each["silent"] < self._hang for each in living),
            "ready": any(each["renewed"] < self._lease and max(each["late"].values(), default=0.0) < LATE for each in working),
            "stopping": self._signals > 0, "processes": found,
        }  # fmt: skip

    def run(self) -> int:
        """Supervise. Returns the exit code: 0 after a clean stop, 78 where no child could start, else a child's."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.signal)
        kill_at: float | None = None
        while True:
            if self._signals > self._passed:
                self._passed = self._signals
                kill_at = kill_at or time.monotonic() + self._grace + KILL_AFTER
                self._pass_on(signal.SIGTERM)
            self._look()
            self._tell()
            alive = [child for child in self._children if child.process is not None]
            if self._signals and not alive:
                return self._code
            if kill_at is not None and time.monotonic() > kill_at:
                log.error("%d process(es) did not end in time and are killed", len(alive))
                self._pass_on(signal.SIGKILL)
                kill_at += KILL_AFTER
            self._events.wait(0.1)
            self._events.clear()

    def _tell(self) -> None:
        """What orchestrators want to know; and as the first process of a container, what nobody else buries."""
        self._systemd.alive()
        if not self._ready and self.report()["ready"]:
            self._ready = True
            self._systemd.tell("READY=1")
        if os.getpid() == 1 and time.monotonic() >= self._reap_at:
            self._reap_at = time.monotonic() + REAP_EVERY
            reap({child.process.pid for child in self._children if child.process is not None})

    def _pass_on(self, number: int) -> None:
        for child in self._children:
            if child.process is not None and child.process.poll() is None:
                child.ended_by_us = child.ended_by_us or number == signal.SIGKILL
                child.process.send_signal(number)

    def _look(self) -> None:
        for child in self._children:
            if child.process is not None:
                code = child.process.poll()
                if code is not None:
                    self._ended(child, code)
                else:
                    self._listen(child)
            elif not self._signals and time.monotonic() >= child.start_at:
                self._start(child)

    def _listen(self, child: Child) -> None:
        """A process that lives and gives no sign holds the interpreter lock: its lease is kept, for a while."""
        assert child.listener is not None
        assert child.process is not None
        silent, now = child.listener.silent, time.monotonic()
        if silent < self._lease / 2 or now - child.renewed < self._lease / 4 or _stands_still(child.process.pid):
            return
        child.renewed = now
        if silent > self._hang:
            log.error("worker process %d has given no sign of life for %.0f s and is killed", child.number + 1, silent)
            child.process.kill()
        elif child.worker is not None:
            threading.Thread(target=self._renew, args=(child.worker,), daemon=True).start()

    def _start(self, child: Child) -> None:
        child.worker = new_id()
        child.started = time.monotonic()
        # A session of its own: Ctrl-C in a terminal reaches the supervisor alone, which passes it on once.
        # The pipe on stdin is how the child notices that the supervisor is gone, however it went.
        child.listener = listener = Listener(time.monotonic)
        try:
            child.process = self._spawn(child.worker, listener)
        except OSError as error:  # files are exchanged by a deploy, or there is no memory: the other children work on
            listener.discard()
            child.listener = None
            child.deaths += 1
            child.start_at = time.monotonic() + min(LONGEST_BACKOFF, 2.0**child.deaths)
            log.error("worker process %d cannot be started, and is tried again: %s", child.number + 1, error)  # noqa: TRY400
            return
        listener.given()

    def _spawn(self, worker: UUID, listener: Listener) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603  this Python, and arguments of ours
            [*self._command(worker)], stdin=subprocess.PIPE, start_new_session=True, pass_fds=[listener.theirs],
            env={**self._environ, VARIABLE: str(listener.theirs)},
        )  # fmt: skip

    def _ended(self, child: Child, code: int) -> None:
        worker, child.process = child.worker, None
        if child.listener is not None:
            child.listener.close()
        self._proven = self._proven or time.monotonic() - child.started > PROVEN
        if self._signals:
            self._code = self._code or (0 if code in CLEAN else code)
        if code == EXIT_CONFIG and not self._proven:
            self._code = EXIT_CONFIG
            self.signal()
            return
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        if code == ASKED:
            child.start_at = math.inf
            log.warning("worker process %d ended as an operator asked", child.number + 1)
            if all(each.process is None and each.start_at == math.inf for each in self._children):
                self.signal()
            return
        own = code in OWN_CODES or child.ended_by_us
        child.ended_by_us = False
        if code != 0 and worker is not None:
            # In a thread: the store may not answer, and signals and the other children must not wait for it.
            threading.Thread(target=self._died, args=(worker, None if own else how), daemon=True).start()
        if self._signals:
            return
        steady = time.monotonic() - child.started > STEADY
        child.deaths = 1 if steady else child.deaths + 1
        delay = 0.0 if code == 0 or child.deaths == 1 else min(LONGEST_BACKOFF, 0.5 * 2 ** (child.deaths - 1))
        delay *= random.uniform(0.75, 1.25)  # noqa: S311  what died together need not come back together
        child.start_at = time.monotonic() + delay
        log.warning("worker process %d %s; it is started again%s", child.number + 1, how, f" in {delay:.0f} s" if delay else "")


def _stands_still(pid: int) -> bool:
    """Whether the process is stopped from outside: then nobody may speak for it."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True


def reap(known: Collection[int]) -> int:
    """Bury dead processes that became ours because their parents are gone. Returns how many.

    Args:
        known: our own, which are waited for elsewhere.
    """
    buried = 0
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error, ChildProcessError):
            if process.pid not in known and process.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(process.pid, os.WNOHANG)
                buried += 1
    return buried

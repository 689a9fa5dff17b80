"""One child, as the worker sees it: what is said to it and by it, what it holds, and how it died.

All that waits for a child stands here, and is called on threads.
"""

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import orjson
import psutil

from jobwell.core.outcome import Outcome, loaded

log = logging.getLogger("jobwell.worker")

LOOK = 0.25  # seconds between two looks at its memory
TAKING = 10.0  # seconds for an order to be taken; a child may still be busy with the end of its last job
REAP = 3.0  # seconds for a process whose pipe is closed to be gone


class Died(Exception):
    """A child died in the middle of a job.

    Args:
        how: the signal or the exit code, and the host.
    """

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class NotTaken(Exception):
    """A child died, or said nothing, before it took the job: nothing of the job has begun, and another child may have it."""


class TooMuchMemory(Exception):
    """A child was killed because it held more than its task may."""


class Misunderstood(Exception):
    """What came through the pipe is no answer to what was asked."""


@dataclass(eq=False)
class Kept:
    """One child.

    Attributes:
        process: it.
        pipe: to it.
        born: monotonic time of its start.
        jobs: how many it was given.
        killed_for: why we killed it; empty where we did not.
        spoiled: it still runs something of a job whose attempt is over.
        calls: what calls of its last job told of resources.
        told: given what its job says of its progress.
    """

    process: Any
    pipe: "Connection[Any, Any]"
    born: float
    jobs: int = 0
    killed_for: str = ""
    spoiled: bool = False
    calls: list[dict[str, Any]] = field(default_factory=list)
    told: Callable[[dict[str, Any]], None] = lambda _: None
    _talking: threading.Lock = field(default_factory=threading.Lock)
    _reaping: threading.Lock = field(default_factory=threading.Lock)

    def signal(self, number: int) -> None:
        """To the whole group; nothing where it is gone."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:  # gone, or so young that it has no group yet
            if not self.dead:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(self.process.pid, number)
        except PermissionError:
            pass

    def kill(self, why: str) -> None:
        """The whole group, at once."""
        self.killed_for = self.killed_for or why
        self.signal(signal.SIGKILL)

    @property
    def dead(self) -> bool:
        """Whether its process has ended."""
        return bool(wait([self.process.sentinel], 0))

    def reap(self, seconds: float | None = None) -> str:
        """Wait for its end, so long at the most; how it ended, in words."""
        wait([self.process.sentinel], seconds)
        with self._reaping:  # its exit code can be read once
            self.process.join(0)
        return how(self.process.exitcode)

    def bury(self) -> None:
        """Wait for its end, and close the pipe: not before, since another thread may listen to it."""
        self.reap()
        with self._talking, contextlib.suppress(OSError):
            self.pipe.close()

    def say(self, data: bytes) -> None:
        """One message to it; nothing where it is gone."""
        with self._talking, contextlib.suppress(OSError, ValueError):
            self.pipe.send_bytes(data)

    def exchange(self, order: bytes, of: str, memory: int | None, begun: Callable[[], object]) -> Outcome | None:
        """The order out, log lines and the outcome in.

        Args:
            order: as it goes through the pipe.
            of: names the attempt: what names another one is no answer.
            memory: bytes that it and what it has started may hold.
            begun: called once it has taken the order.

        Raises:
            Died: it died of itself, or was killed since it could not be understood.
            NotTaken: before it had begun.
            TooMuchMemory: it held more than it may, and was killed.
        """
        self.jobs += 1
        try:
            return self._talk(order, of, memory, begun)
        except (Died, NotTaken, TooMuchMemory):
            raise
        except Exception as error:
            if self.killed_for:  # in the middle of a word
                raise self._death(taken=True) from None
            log.exception("a child process is killed: what it said is no answer")
            self.kill("what it said is no answer")
            raise Died(f"its process did not answer as it should ({error}) on {socket.gethostname()}") from error

    def _talk(self, order: bytes, of: str, memory: int | None, begun: Callable[[], object]) -> Outcome | None:
        taken = False
        patience, look = time.monotonic() + TAKING, 0.0
        self.say(order)
        with contextlib.suppress(EOFError, OSError):
            while True:
                # Its death is seen also where something that it started holds the other end of the pipe open.
                ready = wait([self.pipe, self.process.sentinel], LOOK if memory is not None or not taken else None)
                if self.pipe in ready or (ready and self.pipe.poll()):
                    said = orjson.loads(self.pipe.recv_bytes())
                    if self._beside(said, of):
                        pass
                    elif (said.get("of"), said.get("pid")) != (of, self.process.pid):
                        raise Misunderstood("it spoke of another job, or another process spoke for it")
                    elif "taken" in said:
                        taken = True
                        begun()
                    else:
                        self.spoiled, self.calls = said["busy"], said["calls"]
                        return None if said["outcome"] is None else loaded(said["outcome"])
                elif ready:
                    break
                now = time.monotonic()
                if not taken and now > patience and not self.killed_for:
                    self.kill("it did not take the job")
                if memory is not None and now >= look:  # by the clock: one that logs without a pause is looked at as well
                    look = now + LOOK
                    if held(self.process.pid, memory) > memory:
                        self.kill("memory")
                        memory = None
        raise self._death(taken=taken)

    def _beside(self, said: dict[str, Any], of: str) -> bool:
        """Take in what is no answer; False: it is one."""
        if "log" in said:
            relay(said["log"])
        elif "progress" in said:
            if said.get("of") == of:  # and not of a thread that an earlier job has left behind
                self.told(said["progress"])
        else:
            return False
        return True

    def _death(self, *, taken: bool) -> Exception:
        self.reap(REAP)
        self.signal(signal.SIGKILL)  # what it has started goes with it
        told = self.reap(REAP)
        if self.killed_for == "memory":
            return TooMuchMemory("its process held more memory than it may")
        if not taken:
            return NotTaken(told)
        return Died(f"{told} on {socket.gethostname()}")


def how(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None:
        return "its process is gone"
    if code >= 0:
        return f"its process ended with code {code}"
    name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
    return f"its process was killed by {name}" + (" (out of memory, perhaps)" if -code == signal.SIGKILL else "")


def held(pid: int, enough: int) -> int:
    """Bytes that a process and its descendants hold; pages that they share count once.

    Args:
        pid: the process.
        enough: below it a rough sum, which is never too small, will do: the exact one costs the kernel a walk.
    """
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    rough = sum(_rough(each) for each in family)
    return rough if rough <= enough else sum(_exact(each, alone=each is process) for each in family)


def _rough(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _exact(process: psutil.Process, *, alone: bool) -> int:
    """Its proportional share where the kernel tells it; else all of the first one, and what the others do not share."""
    try:
        info = process.memory_full_info()
    except psutil.Error:
        return _rough(process)
    share = getattr(info, "pss", 0)
    return int(share or (info.rss if alone else info.uss))


def relay(fields: dict[str, Any]) -> None:
    """A log line of a child, to the handlers here. What they or their filters raise costs nobody a job."""
    try:
        record = logging.makeLogRecord(fields)
        logger = logging.getLogger(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)
    except Exception as error:  # noqa: BLE001  handlers and filters are the user's, and raise what they like
        with contextlib.suppress(Exception):
            log.warning("a log line of a child process is lost, as logging it here raised %s: %s", type(error).__name__, error)

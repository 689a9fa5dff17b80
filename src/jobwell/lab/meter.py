"""Meters: processor time and memory of process trees, as the operating system counts them."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Reading:
    """Processor seconds of the worker's and the server's processes. None where the server is not on this host."""

    worker: float
    server: float | None


def read(worker: Iterable[int], postmaster: int | None) -> Reading:
    """Read both meters.

    Args:
        worker: process ids, children included by themselves.
        postmaster: the server's first process.
    """
    return Reading(sum(_tree(pid) for pid in worker), None if postmaster is None else _tree(postmaster))


def _tree(pid: int) -> float:
    try:
        process = psutil.Process(pid)
        members = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    total = 0.0
    for member in members:
        try:
            times = member.cpu_times()
        except psutil.NoSuchProcess:
            continue
        # Of children that ended the parent keeps the account.
        total += times.user + times.system + getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total


def peak_memory_mb(pids: Iterable[int]) -> float | None:
    """The largest peak of resident memory of one of these processes."""
    peaks = []
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        except OSError:
            continue
        peaks += [int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")]
    return max(peaks) if peaks else None


def find_postmaster(backend: int) -> int | None:
    """The server's first process, where it is on this host: the parent of our backend."""
    try:
        process = psutil.Process(backend)
        parent = process.parent()
    except psutil.NoSuchProcess:
        return None
    if parent is None or "postgres" not in process.name():
        return None
    return parent.pid if parent.pid != os.getpid() else None


def memory_mb(pid: int) -> float:
    """The resident memory of a process now."""
    return float(psutil.Process(pid).memory_info().rss) / 1024 / 1024

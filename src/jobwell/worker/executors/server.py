"""Imported by the fork server alone, before everything else: no stranger's signal ends it.

A service manager that stops a whole group of processes, as systemd does by default, signals the fork server too. It must not take
that for its end: with it go all children, in the middle of their jobs. It ends by itself, with the worker.
"""

import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)

"""Facts and arithmetic of jobs: no I/O, no clock of its own, no globals."""

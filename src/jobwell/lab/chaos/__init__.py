"""Chaos: a fleet under seeded faults, and the verdict of the history checker afterwards. `python -m jobwell.lab.chaos`."""

"""Benchmarks, a file for each family of scenarios.

* scenarios: which there are, and how one is run
* result: what a run found, and several runs in one
* targets: what is to be reached
* place: the throw-away schema or database, the workers, the bare SQL loop
"""

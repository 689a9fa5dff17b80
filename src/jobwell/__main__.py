"""`python -m jobwell`."""

from jobwell.cli import main

main()

"""The worker: claims, runs, finishes."""

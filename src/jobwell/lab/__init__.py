"""The laboratory: benchmarks."""

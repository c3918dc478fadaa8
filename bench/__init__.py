"""Benchmarks of whole runs: `python -m bench`."""

"""A scenario of a few milliseconds of work, for tests of what is around a run."""

SMALL = """
seed = 3
[fabric]
kind = "single-switch"
hosts = 4
[[workload]]
kind = "incast"
receiver = "h0"
senders = ["h1", "h2", "h3"]
size = "100KB"
"""

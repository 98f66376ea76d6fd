"""Benchmarks: how fast stores and engine are, next to the least that the database would need.

`python -m benchmarks --help` tells which parts there are; `make bench` runs all of them.
"""

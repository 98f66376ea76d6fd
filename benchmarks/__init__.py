"""Benchmarks: the speed of stores and engine, beside the least that the database needs.

`python -m benchmarks --help` lists the parts; `make bench` runs all of them.
"""

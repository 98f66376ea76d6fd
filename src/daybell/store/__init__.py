"""Where executions are kept. The only package that speaks SQL.

protocol.py says what a store promises; memory/, sqlite/ and postgres/ keep the promise; open.py
picks one by URL.
"""

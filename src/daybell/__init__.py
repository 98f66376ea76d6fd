"""Daybell, a distributed task scheduler that keeps every job in SQLite or PostgreSQL."""

__version__ = "0.1.0.dev0"

__all__ = ["__version__"]

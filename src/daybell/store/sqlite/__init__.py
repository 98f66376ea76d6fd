"""Everything in one file, for one machine: nothing to install, nothing to run.

connection.py has the two threads that all operations travel to; the other modules hold the
operations, one noun each, with their SQL above them.
"""

from daybell.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]

"""The reference model: every promise of the protocol in the simplest code that keeps it.

It serves tests, of Daybell and of its users, and it is what the other stores are compared with.
"""

from daybell.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]

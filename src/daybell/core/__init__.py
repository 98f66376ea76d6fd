"""Domain rules as pure functions and values: no I/O and no asyncio; only `ids` reads a clock and
random bits.
"""

from __future__ import annotations

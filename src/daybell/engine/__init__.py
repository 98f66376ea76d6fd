"""The engine: claim, execute, report, renew the lease, fire schedules, and upkeep. Each part is a
`tick()`, which `loop.py` repeats.
"""

from __future__ import annotations

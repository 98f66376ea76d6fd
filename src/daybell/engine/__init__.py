"""The engine of a worker: claim, execute, report, renew the lease, fire schedules, and upkeep. Each
part is a public `tick()`; `loop.py` repeats ticks.
"""

from __future__ import annotations

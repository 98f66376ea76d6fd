"""What a process does once, when all that it needs is loaded and its work begins."""

from __future__ import annotations

import gc


def settle() -> None:
    """Have the garbage collector leave alone what is loaded, and look less often at the rest.

    Executions come and go by the thousand and hold no cycles: its default is a twentieth of a busy
    process's work.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)

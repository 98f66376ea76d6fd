"""Progress messages of the benchmarks."""

from __future__ import annotations

import sys
import time

_started_at = time.monotonic()


def say(text: str) -> None:
    """Print a line at once, with the minutes and seconds since the start."""
    minutes, seconds = divmod(int(time.monotonic() - _started_at), 60)
    print(f"{minutes:02}:{seconds:02}  {text}", file=sys.stderr, flush=True)

"""The engine: whole worker processes, as in production. Each part can be measured alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.comparison import Comparison
from benchmarks.engine import crowd, drains, idle, kept_logs, latency
from benchmarks.finding import Finding
from benchmarks.loops import run
from benchmarks.places import Kind

PARTS: Final = ("throughput", "logs", "latency", "concurrency", "idle", "help")
QUICK_SCALE: Final = 0.1


def measure(
    parts: Sequence[str], kinds: Sequence[Kind], *, rounds: int, quick: bool
) -> Iterator[tuple[str, list[Comparison] | list[Finding]]]:
    """Parts of the report and their lines, one after the other."""
    scale = QUICK_SCALE if quick else 1.0
    for kind in kinds:
        if "throughput" in parts:
            lines = run(drains.measure(kind, rounds=rounds, scale=scale))
            yield "engine throughput", lines
        if "logs" in parts:
            yield "engine logs", run(kept_logs.measure(kind, rounds=rounds, scale=scale))
        if "latency" in parts and kind == "postgres":
            yield "engine latency", run(latency.measure(rounds=rounds, scale=scale))
        if "concurrency" in parts and kind == "postgres":
            yield "engine concurrency", run(crowd.measure(quick=quick))
        if "idle" in parts:
            yield "engine idle", run(idle.measure(kind, quick=quick))
    if "help" in parts:
        yield "engine help", idle.help_time(quick=quick)

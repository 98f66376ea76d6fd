"""What to tell people about seeds."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.simulation.cluster import Cluster, Outcome, simulate
from tests.simulation.paths import PATHS, STORE_PATHS, missing
from tests.simulation.weather import POINTS, STEPS

LAST_LINES = 40


def describe(outcome: Outcome, *, last: int | None = LAST_LINES) -> str:
    """A seed that broke a promise: which, how to see it again, and what happened before."""
    replay = f"python -m tests.simulation --seed {outcome.seed} --trace"
    replay += outcome.flags
    return "\n".join(
        (
            f"seed {outcome.seed}, commit {commit()}: {outcome.failure}",
            f"to see it again: {replay}",
            *outcome.trace(last),
        )
    )


def lived_through(seeds: Iterable[int], kind: type[Cluster] = Cluster) -> Counter[str]:
    """Which paths were taken in these seeds, in none of which a promise was broken."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        outcome = simulate(seed, kind)
        assert outcome.failure is None, describe(outcome)
        seen += outcome.seen
    return seen


def commit() -> str:
    """The commit that was simulated, if this is a checkout."""
    folder = Path(__file__).parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()


def spared(points: set[str]) -> str:
    """The named points at which nobody has ever died."""
    named = [f"{step}.{point}" for step in STEPS for point in POINTS]
    return ", ".join(point for point in named if point not in points)


def summary(
    outcomes: Counter[str],
    seen: Counter[str],
    points: set[str],
    paths: Mapping[str, str] = PATHS,
) -> str:
    """Many seeds, in a page."""
    lines = [
        f"{outcomes['runs']:,} runs: {outcomes['executions']:,} executions,"
        f" {outcomes['steps']:,} steps, {outcomes['seconds'] / 3600:,.1f} simulated hours;"
        f" {outcomes['failures']:,} broke a promise",
        f"processes died at {len(points)} different points; at none of: {spared(points) or '-'}",
        "how often each rare path was taken:",
    ]
    meanings = {**paths, **STORE_PATHS}
    lines += [f"{seen[name]:9,}  {name}: {meaning}" for name, meaning in meanings.items()]
    if tame := missing(seen, paths):
        lines += ["too tame; what has never happened:", *(f"  {one}" for one in tame)]
    return "\n".join(lines)

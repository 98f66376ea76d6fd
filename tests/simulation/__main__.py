"""Run seeds by hand: one, to look at it, or thousands.

python -m tests.simulation --seed 123 --trace
python -m tests.simulation --seeds 5000
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack

from tests.simulation.cluster import Cluster, Outcome, simulate
from tests.simulation.controls import ControlCluster
from tests.simulation.dependents import DependentCluster
from tests.simulation.flows import FlowCluster
from tests.simulation.paths import CONTROL_PATHS, DEPENDENT_PATHS, FLOW_PATHS, PATHS, missing
from tests.simulation.report import describe, summary

CHUNK = 25
CLUSTERS = {
    "plain": Cluster,
    "flows": FlowCluster,
    "dependents": DependentCluster,
    "controls": ControlCluster,
}
PATHS_OF = {
    "plain": PATHS,
    "flows": FLOW_PATHS,
    "dependents": DEPENDENT_PATHS,
    "controls": CONTROL_PATHS,
}
Result = tuple[int, str | None, Counter[str], set[str], Counter[str]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--seeds", type=int, default=200, help="run so many, from --first on")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--trace", action="store_true", help="show all that happens")
    parser.add_argument("--workers", type=int, default=1, help="processes to run seeds in")
    parser.add_argument("--flows", action="store_true", help="clusters that run workflows")
    parser.add_argument("--dependents", action="store_true", help="jobs that depend on jobs")
    parser.add_argument("--controls", action="store_true", help="limits, demands, events")
    parser.add_argument("--until-broken", action="store_true", help="end at the first failure")
    options = parser.parse_args()
    kind = next((one for one in CLUSTERS if getattr(options, one, False)), "plain")
    if options.seed is not None:
        return run_one(options.seed, kind, with_trace=options.trace)
    seeds = range(options.first, options.first + options.seeds)
    return run_many(seeds, kind, workers=options.workers, until_broken=options.until_broken)


def run_one(seed: int, kind: str, *, with_trace: bool) -> int:
    """Run a seed and show it; 1 if it broke a promise."""
    outcome = simulate(seed, CLUSTERS[kind])
    if outcome.failure is not None:
        say(describe(outcome, last=None if with_trace else 40))
        return 1
    if with_trace:
        say("\n".join(outcome.trace()))
    say(
        f"seed {seed}: {outcome.executions} executions ended well,"
        f" {outcome.steps} steps, {outcome.seconds:.0f} s"
    )
    return 0


def run_many(seeds: Sequence[int], kind: str, *, workers: int, until_broken: bool) -> int:
    """Run seeds and sum up; 1 if one broke a promise or all were too tame."""
    totals: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    points: set[str] = set()
    for seed, failure, paths, died_at, numbers in results(seeds, kind, workers):
        totals += numbers
        seen += paths
        points |= died_at
        if failure is not None:
            totals["failures"] += 1
            say(failure)
            if until_broken:
                say(f"broken by run {totals['runs']}: seed {seed}")
                return 1
        if totals["runs"] % 500 == 0:
            say(f"{totals['runs']:,} of {len(seeds):,} runs, {totals['failures']} failures")
    paths = PATHS_OF[kind]
    say(summary(totals, seen, points, paths))
    return int(totals["failures"] > 0 or bool(missing(seen, paths)))


def results(seeds: Sequence[int], kind: str, workers: int) -> Iterator[Result]:
    asked = [(seed, kind) for seed in seeds]
    with ExitStack() as stack:
        if workers == 1:
            yield from itertools.starmap(run, asked)
        else:
            pool = stack.enter_context(ProcessPoolExecutor(workers))
            yield from pool.map(run, *zip(*asked, strict=True), chunksize=CHUNK)


def run(seed: int, kind: str) -> Result:
    """A seed, as what can be sent between processes."""
    outcome = simulate(seed, CLUSTERS[kind])
    failure = None if outcome.failure is None else describe(outcome)
    return seed, failure, outcome.seen, outcome.points, numbers(outcome)


def numbers(outcome: Outcome) -> Counter[str]:
    return Counter(
        runs=1,
        executions=outcome.executions,
        steps=outcome.steps,
        seconds=round(outcome.seconds),
    )


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

"""Parts: throughput, growth and size are about stores, firing is about a scheduler, language about
finding times, serving about the API, dashboard about the calls of its pages, workflow about graphs
of jobs, durable about steps of functions, engine about whole worker processes.

python -m benchmarks [throughput | growth | size | firing | language | serving | dashboard |
                      workflow | durable | engine …]
                     [--part …] [--store …] [--rounds N]
"""

from __future__ import annotations

import argparse
from typing import Final

from benchmarks import (
    dashboard,
    durable,
    engine,
    firing,
    growth,
    language,
    report,
    serving,
    size,
    throughput,
    workflow,
)
from benchmarks.loops import run
from benchmarks.places import KINDS
from benchmarks.progress import say

PARTS: Final = (
    "throughput", "growth", "size", "firing", "language", "serving", "dashboard", "workflow",
    "durable",
    "engine",
)  # fmt: skip
QUICK_SCALE: Final = 0.2
QUICK_ROUNDS: Final = 2


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}; default: all"
    )
    parser.add_argument(
        "--part", choices=engine.PARTS, action="append", help="of engine; default: all"
    )
    parser.add_argument("--store", choices=KINDS, action="append", help="only this one")
    parser.add_argument("--rounds", type=int, default=5, help="of throughput; default: 5")
    parser.add_argument("--quick", action="store_true", help="a rough look; nothing is kept")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no part named {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    parts = arguments.parts or (("engine",) if arguments.part else PARTS)
    kinds = arguments.store or KINDS
    scale = QUICK_SCALE if arguments.quick else 1.0
    rounds = QUICK_ROUNDS if arguments.quick else arguments.rounds

    results = report.new_report(rounds)
    for kind in kinds:
        if "throughput" in parts:
            lines = run(throughput.measure(kind, rounds=rounds, scale=scale))
            report.add(results, "throughput", lines)
        if "growth" in parts:
            report.add(results, "growth", run(growth.measure(kind, scale=scale)))
        if "firing" in parts:
            lines = run(firing.measure(kind, rounds=rounds, scale=scale))
            report.add(results, "firing", lines)
        if "serving" in parts:
            lines = run(serving.measure(kind, rounds=rounds, scale=scale))
            report.add(results, "serving", lines)
        if "dashboard" in parts:
            report.add(results, "dashboard", run(dashboard.measure(kind, scale=scale)))
        if "workflow" in parts:
            lines = run(workflow.measure(kind, rounds=rounds, scale=scale))
            report.add(results, "workflow", lines)
        if "durable" in parts:
            lines = run(durable.measure(kind, rounds=rounds, scale=scale))
            report.add(results, "durable", lines)
        if "size" in parts:
            report.add(results, "size", run(size.measure(kind, scale=scale)))
    if "language" in parts:
        report.add(results, "language", language.measure(rounds=rounds, scale=scale))
    if "engine" in parts:
        chosen = arguments.part or engine.PARTS
        for part, lines in engine.measure(chosen, kinds, rounds=rounds, quick=arguments.quick):
            report.add(results, part, lines)
    print(report.page(results))
    if not arguments.quick:
        say(f"kept as {report.save(results).name}")


if __name__ == "__main__":
    main()

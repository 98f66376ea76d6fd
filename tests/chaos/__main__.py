"""`make chaos`: some minutes on each store, and a summary.

python -m tests.chaos --minutes 5 --seed 7 --store postgres
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

from daybell.chaos.faults import Kind
from daybell.chaos.run import ChaosOptions, Summary
from tests.chaos.places import on_postgres, on_sqlite

SHOWN_MAX = 10  # violations of each rule


def say(line: str) -> None:
    sys.stderr.write(line + "\n")


async def run(store: str, options: ChaosOptions) -> Summary:
    if store == "postgres":
        return await on_postgres(options, tell=say)
    with tempfile.TemporaryDirectory(prefix="daybell-chaos-db-") as folder:
        return await on_sqlite(options, Path(folder), tell=say)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=300.0)
    parser.add_argument("--peace", type=float, default=90.0, help="seconds for the last to end")
    parser.add_argument("--remote", action="store_true", help="workers without the database")
    parser.add_argument("--store", choices=["postgres", "sqlite"], action="append")
    parser.add_argument(
        "--only", metavar="FAULTS", help=f"such as kill,late; of {', '.join(Kind)}; empty: none"
    )
    asked = parser.parse_args()
    kinds = None if asked.only is None else [Kind(one) for one in asked.only.split(",") if one]
    seconds = asked.seconds or 60 * asked.minutes
    options = ChaosOptions(
        seconds=seconds,
        seed=asked.seed,
        rate=asked.rate,
        peace=asked.peace,
        remote=asked.remote,
        only=tuple(Kind) if kinds is None else kinds,
    )
    is_ok = True
    for store in asked.store or ["postgres", "sqlite"]:
        summary = asyncio.run(run(store, options))
        is_ok = is_ok and summary.is_ok
        for name, value in {"store": store, **summary.fields()}.items():
            if value:
                sys.stdout.write(f"{name:<15} {value}\n")
        shown = Counter[str]()
        for violation in summary.violations:
            shown[violation.rule] += 1
            if shown[violation.rule] <= SHOWN_MAX:
                sys.stdout.write(f"  {violation.rule}: {violation.what}\n")
        sys.stdout.write("\n")
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())

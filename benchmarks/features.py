"""The price of features: a drain of plain jobs beside jobs that log, print, fail, and so on.

A plain job has three arguments and records one effect. One `daybell worker` process drains a full
queue of each kind, in turns; with a commit, the same for that commit in the same run. Processor
time is that of the worker from its first start to its last end, and that of the server. Public
names only, so that the same file measures any commit.

python -m benchmarks.features [COMMIT] [--rounds N] [--jobs N] [--store …] [--only CASE …]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks import report
from benchmarks.earlier import call, environment_of, extract
from benchmarks.feature_jobs import CASES, MODULE, RECORDS, Drain
from benchmarks.finding import Finding
from benchmarks.machine import ROOT
from benchmarks.places import DEFAULT_POSTGRES, KINDS, SERVER_SETTINGS, Kind
from benchmarks.progress import say
from tests.postgres import Postgres


class Side:
    """A process that enqueues, and starts workers, with the source of one commit."""

    def __init__(self, source: Path, url: str, pid: int, records: Path) -> None:
        records.touch()
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE, url, str(pid)],
            cwd=ROOT,
            env=environment_of(source, url) | {RECORDS: str(records)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"

    def measure(self, case: str, count: int) -> Drain:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{case} {count}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"the process of {case} has ended; its error is above")
        return Drain(*json.loads(line))

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)


def compare(
    kind: Kind, sources: dict[str, Path], folder: Path, arguments: argparse.Namespace
) -> list[Finding]:
    cases = arguments.only or list(CASES)
    found: dict[tuple[str, str], list[Drain]] = {}
    with ExitStack() as stack:
        server = None
        if kind == "postgres":
            server = stack.enter_context(
                Postgres(version=DEFAULT_POSTGRES, durable=True, **SERVER_SETTINGS)
            )
        sides: dict[str, Side] = {}
        for name, source in sources.items():
            url = server.create_database(name) if server else f"sqlite:///{folder}/{name}.db"
            call(source, url, "daybell", "migrate")
            records = folder / f"{kind}-{name}.records"
            sides[name] = stack.enter_context(
                Side(source, url, server.pid if server else 0, records)
            )
        for turn in range(arguments.rounds):
            for case in cases:
                for name in list(sides) if turn % 2 else list(reversed(sides)):
                    count = int(arguments.jobs * CASES[case].share)
                    done = sides[name].measure(case, count)
                    found.setdefault((name, case), []).append(done)
                    say(f"{kind} {name:8} {case:10} {shown(done)}")
    return [
        finding(kind, name, case, found, is_compared=len(sides) > 1)
        for case in cases
        for name in sides
    ]


def shown(done: Drain) -> str:
    return (
        f"{done.rate:,.0f}/s, {done.worker:.1f} + {done.server:.1f} µs; enqueued"
        f" {done.enqueue_rate:,.0f}/s, {done.client:.1f} + {done.enqueue_server:.1f} µs"
    )


def finding(
    kind: Kind,
    name: str,
    case: str,
    found: dict[tuple[str, str], list[Drain]],
    *,
    is_compared: bool,
) -> Finding:
    """The rate of a kind of job as a part of that of plain ones, in the same round."""
    drains = found[name, case]
    middle = Drain(*(median(values) for values in zip(*drains, strict=True)))
    plain_ones = found.get((name, "plain"), drains)
    ratio = median(one.rate / other.rate for one, other in zip(drains, plain_ones, strict=True))
    what = f"{case}, {name}" if is_compared else case
    bar = CASES[case].bar if name == "now" else None
    line = Finding(kind, what, ratio, "x", shown(middle), bar, is_upper=False)
    print(line.line, flush=True)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.features", description=__doc__)
    parser.add_argument("commit", nargs="?", help="beside this one")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--jobs", type=int, default=30_000, help="of each kind; default: 30000")
    parser.add_argument("--store", choices=KINDS, action="append", help="only this one")
    parser.add_argument("--only", choices=list(CASES), action="append", help="only this kind")
    parser.add_argument("--keep", action="store_true", help="keep the figures in results/")
    arguments = parser.parse_args()
    results = report.new_report(arguments.rounds)
    with tempfile.TemporaryDirectory(prefix="daybell-bench-") as name:
        folder = Path(name)
        sources = {"now": ROOT / "src"}
        if arguments.commit:
            sources["earlier"] = extract(arguments.commit, folder)
        for kind in arguments.store or KINDS:
            report.add(results, "features", compare(kind, sources, folder, arguments))
    if arguments.keep:
        print(report.save(results))


if __name__ == "__main__":
    main()

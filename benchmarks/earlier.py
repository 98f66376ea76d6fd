"""This commit beside an earlier one: throughput, latency, enqueue and memory in one run.

Both sides are measured by `benchmarks/probe.py` of this commit, in processes that import the
source of their side, on databases of their own in one server. Both processes stay for the whole
run and take turns at every single measurement, each some seconds long, so that a machine that is
slower for a minute is slower for both.

python -m benchmarks.earlier [COMMIT] [--rounds N] [--store …] [--only MEASUREMENT]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import report
from benchmarks.finding import Finding
from benchmarks.machine import ROOT
from benchmarks.places import DEFAULT_POSTGRES, KINDS, SERVER_SETTINGS, Kind
from benchmarks.progress import say
from tests.postgres import Postgres

BAR: Final = 0.97
Figures = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.earlier", description=__doc__)
    parser.add_argument("commit", nargs="?", default="HEAD~1", help="default: HEAD~1")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--store", choices=KINDS, action="append", help="only this one")
    parser.add_argument("--only", action="append", help="only this measurement, such as drain")
    arguments = parser.parse_args()
    results = report.new_report(arguments.rounds)
    with tempfile.TemporaryDirectory(prefix="daybell-bench-") as name:
        folder = Path(name)
        sources = {"now": ROOT / "src", "earlier": extract(arguments.commit, folder)}
        for kind in arguments.store or KINDS:
            lines = compare(kind, sources, folder, arguments)
            report.add(results, "earlier", lines)
    print(report.save(results))


def extract(commit: str, folder: Path) -> Path:
    """Write the source of a commit into a folder."""
    done = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True)
    if done.returncode:
        sys.exit(f"no commit {commit!r} here: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder / "earlier", filter="data")
    return folder / "earlier" / "src"


def compare(
    kind: Kind, sources: dict[str, Path], folder: Path, arguments: argparse.Namespace
) -> list[Finding]:
    figures: dict[str, Figures] = {side: {} for side in sources}
    with ExitStack() as stack:
        server = None
        if kind == "postgres":
            server = stack.enter_context(
                Postgres(version=DEFAULT_POSTGRES, durable=True, **SERVER_SETTINGS)
            )
        probes: dict[str, Probe] = {}
        for side, source in sources.items():
            url = server.create_database(side) if server else f"sqlite:///{folder}/{side}.db"
            call(source, url, "daybell", "migrate")
            probes[side] = stack.enter_context(Probe(source, url))
        for what in arguments.only or probes["now"].measurements:
            for turn in range(arguments.rounds):
                for side in list(sources) if turn % 2 else list(reversed(sources)):
                    for name, value in probes[side].measure(what).items():
                        figures[side].setdefault(name, []).append(value)
            say(f"{kind}: {what} done")
    return [finding(kind, arguments.commit, what, figures) for what in figures["now"]]


def finding(kind: Kind, commit: str, what: str, figures: dict[str, Figures]) -> Finding:
    """The ratio of the medians, so that more is better."""
    now, earlier = (median(figures[side][what]) for side in ("now", "earlier"))
    is_rate = not what.endswith((", ms", ", MB"))
    ratio = now / earlier if is_rate else earlier / now
    detail = f"{now:,.4g} now, {earlier:,.4g} at {commit}; medians of {len(figures['now'][what])}"
    bar = None if "p99" in what else BAR  # a tail of some hundred jobs is noise
    line = Finding(kind, f"{what}, beside {commit}", ratio, "x", detail, bar, is_upper=False)
    say(f"{kind}: {what}: {ratio:.3f}  ({detail})  {line.verdict}")
    return line


class Probe:
    """A `benchmarks.probe` process of one side."""

    def __init__(self, source: Path, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.probe", url],
            cwd=ROOT,
            env=environment_of(source, url),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.measurements: list[str] = self._answer()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=30)

    def measure(self, what: str) -> dict[str, float]:
        assert self._process.stdin
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            sys.exit("benchmarks.probe has ended; its error is above")
        return json.loads(line)


def environment_of(source: Path, url: str) -> dict[str, str]:
    path = f"{source}{os.pathsep}{ROOT}"
    return os.environ | {"PYTHONPATH": path, "DAYBELL_DATABASE_URL": url}


def call(source: Path, url: str, module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment_of(source, url),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{module} failed on {source}:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()

"""Daybell beside other queues on PostgreSQL, by a rig in a folder: `run.py` with its contenders.

Installs the peers from their packages into a cache, takes interleaved passes, and prints and keeps
a table of medians and quietest passes. The rig starts the servers.

python -m benchmarks.peers RIG [--passes N] [--results FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks import report
from benchmarks.finding import Finding
from benchmarks.machine import ROOT

PACKAGES: Final = {
    "daybell": ["-e", str(ROOT), "uvloop"],
    "pgqueuer": ["pgqueuer[asyncpg,cli]", "uvloop"],
}
NODE_PACKAGES: Final = ("graphile-worker", "pg")
RUNS: Final = (
    (("W2", "W3"), ("daybell", "pgqueuer", "graphile")),
    (("W2",), ("daybell:sqlite",)),
)


class Figure(NamedTuple):
    """A figure of the rig, with the goal of Daybell on PostgreSQL."""

    label: str
    key: str
    what: str
    unit: str
    goal: float | None = None
    is_upper: bool = True
    is_relative: bool = False  # the goal is a multiple of the best peer


FIGURES: Final = (
    Figure("W2 x1", "rate", "drain, 1 process", "/s", 2.0, is_upper=False, is_relative=True),
    Figure("W2 x2", "rate", "drain, 2 processes", "/s", 2.0, is_upper=False, is_relative=True),
    Figure("W2 x1", "worker_cpu", "worker per job", "µs", 16.0),
    Figure("W2 x1", "server_cpu", "server per job", "µs", 14.0),
    Figure("W1 many", "rate", "bulk enqueue", "/s", 1.5, is_upper=False, is_relative=True),
    Figure("W1 many", "client_cpu", "client per enqueue", "µs"),
    Figure("W1 many", "server_cpu", "server per enqueue", "µs"),
    Figure("W3 100/s", "p50_ms", "start delay at 100/s, p50", "ms", 1.5),
    Figure("W3 100/s", "p99_ms", "start delay at 100/s, p99", "ms", 5.0),
)
SQLITE_DRAIN: Final = 40_000.0
OWN: Final = "daybell"
# None of these contenders uses Redis, but the rig starts it.
NO_REDIS: Final = """#!{python}
import socketserver, sys
class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline():
            self.wfile.write(b"+OK\\r\\n")
port = int(sys.argv[sys.argv.index("--port") + 1])
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("127.0.0.1", port), Answer).serve_forever()
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("rig", type=Path, help="the folder with run.py")
    parser.add_argument("--passes", type=int, default=3, help="default: 3")
    parser.add_argument("--results", type=Path, help="rows as JSON lines; default: not kept")
    arguments = parser.parse_args()
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "daybell-bench"
    environment = prepare(cache)
    with tempfile.TemporaryDirectory(prefix="daybell-bench-") as folder:
        file = arguments.results or Path(folder, "rows.jsonl")
        for _ in range(arguments.passes):
            for workloads, contenders in RUNS:
                command = [sys.executable, "run.py", *workloads]
                command += ["--contenders", ",".join(contenders), "--results", str(file.absolute())]
                subprocess.run(command, cwd=arguments.rig, env=environment, check=True)
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    results = report.new_report(arguments.passes)
    report.add(results, "peers", findings(rows))
    print(report.page(results))
    print(report.save(results))
    for row in rows:
        if "error" in row or row.get("missing") or row.get("repeated"):
            print(f"failed: {json.dumps(row)}")


def prepare(cache: Path) -> dict[str, str]:
    """Install the peers, and return the environment of the rig."""
    environments, node, programs = cache / "venvs", cache / "node", cache / "bin"
    for name, packages in PACKAGES.items():
        if not (environments / name).exists():
            venv.create(environments / name, with_pip=True)
        command = [environments / name / "bin/pip", "install", "-q", *packages]
        subprocess.run(command, env=os.environ | {"DAYBELL_SKIP_DASHBOARD": "1"}, check=True)
    node.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "install", "--silent", *NODE_PACKAGES], cwd=node, check=True)
    programs.mkdir(exist_ok=True)
    if shutil.which("redis-server") is None:
        stand_in = programs / "redis-server"
        stand_in.write_text(NO_REDIS.format(python=sys.executable))
        stand_in.chmod(0o755)
    return os.environ | {
        "BENCH_VENVS": str(environments),
        "BENCH_NODE_MODULES": str(node),
        "PATH": f"{os.environ['PATH']}{os.pathsep}{programs}",
    }


def findings(rows: list[dict[str, Any]]) -> list[Finding]:
    """Return the median of each figure and contender, and the ratios that are goals."""
    names = list(dict.fromkeys(row["contender"] for row in rows))
    lines: list[Finding] = []
    for figure in FIGURES:
        medians: dict[str, float] = {}
        for name in names:
            chosen = [
                row
                for row in rows
                if (row["contender"], row["workload"]) == (name, figure.label) and figure.key in row
            ]
            if chosen:
                line = measured(figure, name, chosen)
                medians[name] = line.value
                lines.append(line)
        peers = {name: value for name, value in medians.items() if not name.startswith(OWN)}
        if figure.is_relative and OWN in medians and peers:
            best = max(peers, key=peers.__getitem__)
            what, ratio = f"{figure.what}, {OWN} beside {best}", medians[OWN] / peers[best]
            lines.append(
                Finding("postgres", what, ratio, "x", bar=figure.goal, is_upper=figure.is_upper)
            )
    return lines


def measured(figure: Figure, name: str, rows: list[dict[str, Any]]) -> Finding:
    # The rig counts processor time in seconds per 1,000 jobs.
    factor = 1e3 if figure.unit == "µs" else 1.0
    quietest = min(rows, key=lambda row: (row.get("foreign_pct", 0), row.get("steal_pct", 0)))
    value = median(row[figure.key] for row in rows) * factor
    detail = f"{quietest[figure.key] * factor:,.4g} in the quietest of {len(rows)}"
    is_sqlite = name.endswith(":sqlite")
    goal = figure.goal if name == OWN and not figure.is_relative else None
    if is_sqlite and figure.what == "drain, 1 process":
        goal = SQLITE_DRAIN
    return Finding(
        "sqlite" if is_sqlite else "postgres",
        f"{figure.what}, {name}",
        value,
        figure.unit,
        detail,
        goal,
        is_upper=figure.is_upper,
    )


if __name__ == "__main__":
    main()

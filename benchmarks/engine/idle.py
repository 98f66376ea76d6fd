"""The cost of idle commands, and of the help. Real commands, without changes."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import IO, Final

from benchmarks.finding import Finding
from benchmarks.growth import found
from benchmarks.machine import ROOT
from benchmarks.places import Kind, Place, open_ground

APP: Final = "benchmarks.engine.tasks:app"
UP_SECONDS_MAX: Final = 20.0
SETTLE_SECONDS: Final = 3.0
IDLE_SECONDS, QUICK_IDLE_SECONDS = 20.0, 5.0
HELP_RUNS: Final = 7
DEV_PERCENT_MAX: Final = 1.0
STATEMENTS_MAX: Final = 2.0
HELP_MS_MAX: Final = 200.0
STATEMENT: Final = re.compile(rb"LOG:  (?:execute|statement|fastpath)\b")


async def measure(kind: Kind, *, quick: bool) -> list[Finding]:
    """`daybell dev` on this kind of store; on PostgreSQL also a worker's statements."""
    seconds = QUICK_IDLE_SECONDS if quick else IDLE_SECONDS
    with open_ground(kind) as ground:
        findings = [await dev(await ground.place("dev"), seconds)]
        if kind == "postgres":
            findings.append(await worker(await ground.place("worker"), seconds))
    return findings


async def dev(place: Place, seconds: float) -> Finding:
    with command(place, "dev", APP, "--port", "0") as (process, _):
        await settled(place, process)
        before = cpu_seconds(process.pid)
        await asyncio.sleep(seconds)
        percent = (cpu_seconds(process.pid) - before) / seconds * 100
    return found(
        Finding(
            place.kind, "idle `daybell dev`, of one core", percent, "%",
            f"over {seconds:g} s", bar=DEV_PERCENT_MAX,
        )
    )  # fmt: skip


async def worker(place: Place, seconds: float) -> Finding:
    name = place.url.rpartition("/")[2]
    await place.run(f"ALTER DATABASE {name} SET log_statement = 'all'", "SELECT 1")
    with command(place, "worker", APP) as (process, _):
        await settled(place, process)
        before, cpu = statements(place), cpu_seconds(process.pid)
        await asyncio.sleep(seconds)
        count = statements(place) - before
        percent = (cpu_seconds(process.pid) - cpu) / seconds * 100
    return found(
        Finding(
            "postgres", "statements of an idle `daybell worker`", count / seconds, "/s",
            f"{count} in {seconds:g} s, in the server's log; {percent:.2f} % of a core",
            bar=STATEMENTS_MAX,
        )
    )  # fmt: skip


def help_time(*, quick: bool) -> list[Finding]:
    """`daybell --help`; the first run, which may compile, is dropped."""
    program = Path(sys.executable).with_name("daybell")
    words = [str(program)] if program.exists() else [sys.executable, "-m", "daybell"]
    runs = 2 if quick else HELP_RUNS
    times = [cpu_of([*words, "--help"]) * 1e3 for _ in range(runs + 1)][1:]
    return [
        found(
            Finding(
                "none", "processor time of `daybell --help`", median(times), "ms",
                f"median of {runs}, from {min(times):.0f} to {max(times):.0f} ms",
                bar=HELP_MS_MAX,
            )
        )
    ]  # fmt: skip


@contextmanager
def command(
    place: Place, *words: str, **more: str
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """A running `daybell` command with its output, which is shown if it dies; `more` goes into its
    environment.
    """
    environment = os.environ | {"DAYBELL_DATABASE_URL": place.database_url} | more
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "daybell", *words],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
        try:
            yield process, output
            died = process.poll() is not None
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if died:
            output.seek(0)
            raise RuntimeError(f"daybell {words[0]} ended:\n{output.read().decode()}")


async def settled(place: Place, process: subprocess.Popen[bytes]) -> None:
    """Wait until the worker has registered, and a while longer."""
    deadline = time.monotonic() + UP_SECONDS_MAX
    while not await place.ask("SELECT count(*) FROM worker"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("no worker came up")
        await asyncio.sleep(0.1)
    await asyncio.sleep(SETTLE_SECONDS)


def statements(place: Place) -> int:
    return len(STATEMENT.findall(place.server_log.read_bytes()))


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of(words: list[str]) -> float:
    """Processor time of a program from its start to its end."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{words} ended with {process.returncode}"
    return used.ru_utime + used.ru_stime

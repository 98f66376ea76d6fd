"""The conditions of figures: the commit, the machine and the versions. Never its name."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import sqlite3
import subprocess
from pathlib import Path
from typing import Final

from benchmarks.places import DEFAULT_POSTGRES, SERVER_SETTINGS
from tests.postgres import DURABLE, find_binaries

ROOT: Final = Path(__file__).parent.parent


def commit() -> str:
    """Return the short hash; with a plus if the source was changed since."""
    changed = git("status", "--porcelain", "--", "src", "benchmarks/*.py")
    return git("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or ("unknown" if done.returncode else "")


def facts() -> dict[str, str]:
    """Return the facts that a reader needs to compare."""
    settings = DURABLE | SERVER_SETTINGS
    shown = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size")
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": f"{sqlite3.sqlite_version}, WAL, synchronous = FULL",
        "postgresql": f"{postgres_version()}, "
        + ", ".join(f"{name} = {settings[name]}" for name in shown),
        "asyncpg": importlib.metadata.version("asyncpg"),
        "event loop": event_loop(),
        "garbage collector": f"on, thresholds {gc.get_threshold()}, in workers as they set them;"
        " collected before each run",
    }


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def postgres_version() -> str:
    binary = find_binaries(DEFAULT_POSTGRES) / "postgres"
    done = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.rpartition(" ")[2].strip()


def event_loop() -> str:
    try:
        return f"uvloop {importlib.metadata.version('uvloop')}"
    except importlib.metadata.PackageNotFoundError:
        return "asyncio"

"""The command as a user runs it: a process of its own, in a folder of its own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def environment(**variables: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DAYBELL_")}
    return clean | {"PYTHONWARNINGS": "error", "COLUMNS": "80"} | variables


def daybell(*words: str, folder: Path, **variables: str) -> Ended:
    done = subprocess.run(
        [sys.executable, "-m", "daybell", *words],
        cwd=folder,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return Ended(done.returncode, done.stdout, done.stderr)

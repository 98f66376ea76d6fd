"""Commands in forks are as good as commands in processes that were started for them."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.cli.terminal import daybell, environment, forks

LOOK = """
import json, os, signal, sys, warnings
from pathlib import Path

def of(stream):
    kept = stream.encoding, stream.errors, stream.line_buffering, stream.write_through
    return [stream.fileno(), *kept, stream.isatty(), os.fstat(stream.fileno()).st_mode >> 12]

main = sys.modules["__main__"]
Path("facts.json").write_text(json.dumps({
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "path": sys.path,
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "main": [main.__name__, main.__file__],
    "streams": [of(sys.stdin), of(sys.stdout), of(sys.stderr)],
    "first streams": [one.fileno() for one in (sys.__stdin__, sys.__stdout__, sys.__stderr__)],
    "files": sorted(os.listdir("/proc/self/fd")),
    "signals": [str(signal.getsignal(number)).split(" at 0x")[0] for number in (2, 15, 17)],
    "ignored": [line for line in open("/proc/self/status") if line.startswith("SigIgn")],
    "warnings": str(warnings.filters[:3]),
    "group": os.getpgrp(),
}))
print("looked")
sys.exit("seen enough")
"""


def test_a_fork_cannot_be_told_from_a_process_that_was_started(tmp_path):
    (tmp_path / "app.py").write_text(LOOK)
    words = ("worker", "app:app")
    given = environment(COLOUR="red")

    with open(tmp_path / "out", "w+") as out, open(tmp_path / "err", "w+") as err:
        code = subprocess.run(
            [sys.executable, "-m", "daybell", *words],
            cwd=tmp_path,
            env=given,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            timeout=300,
        ).returncode
    started = json.loads((tmp_path / "facts.json").read_text())
    ended = daybell(*words, folder=tmp_path, stdin=None, **given)
    forked = json.loads((tmp_path / "facts.json").read_text())

    # Each by itself, so that a failure names the difference.
    assert forked.pop("environment").items() ^ started.pop("environment").items() == set()
    assert forked == started
    assert ended == (code, (tmp_path / "out").read_text(), (tmp_path / "err").read_text())


def test_each_fork_is_a_process_of_its_own(tmp_path):
    app = "import os\nprint(os.getpid(), flush=True)\nos.kill(os.getpid(), 9)\n"
    (tmp_path / "app.py").write_text(app)

    ends = [daybell("worker", "app:app", folder=tmp_path) for _ in range(2)]

    assert [ended.code for ended in ends] == [-signal.SIGKILL] * 2
    assert len({os.getpid(), *(int(ended.out) for ended in ends)}) == 3


def test_one_that_goes_on_for_too_long_is_killed(tmp_path):
    (tmp_path / "app.py").write_text("import signal\nwhile True:\n    signal.pause()\n")
    with open(os.devnull, "r+") as nothing:
        fork = forks().start(
            ("worker", "app:app"),
            folder=tmp_path,
            environment=environment(),
            streams=[nothing.fileno()] * 3,
        )

        with pytest.raises(TimeoutError, match="has not ended"):
            fork.wait(0.1)

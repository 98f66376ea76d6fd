"""The processes under test: how long a busy machine has kept them waiting."""

import subprocess
import sys

from daybell.chaos.fleet import Starvation
from tests.postgres import eventually

# Two children on one processor, so that each of them waits for it.
PARENT = """
import os, subprocess, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
spin = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
print("started", flush=True)
sys.stdin.readline()
for one in spin:
    one.kill()
    one.wait()
print("ended", flush=True)
sys.stdin.readline()
"""


def test_the_time_that_a_child_waited_counts_after_its_end():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        starvation = Starvation(parent.pid)
        parent.stdout.readline()
        assert eventually(lambda: starvation.seconds() > 0.1, 60)

        waited = starvation.seconds()
        parent.stdin.write("end\n")
        parent.stdin.flush()
        parent.stdout.readline()

        assert starvation.seconds() >= waited
        parent.stdin.write("end\n")

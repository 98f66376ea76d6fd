"""What a killed process of several ran goes to the others at once, not when its lease has ended."""

import json
import os
import re
import signal
import time

from tests.cli.terminal import Running, daybell

APP = """\
import os, time
from daybell import App, Context

app = App()

@app.task
def bake(ctx: Context) -> None:
    print(f"bakes, attempt {ctx.attempt}, in {os.getpid()}", flush=True)
    while ctx.attempt == 1:
        time.sleep(0.01)
"""
LEASE = 300.0


def test_what_a_killed_process_ran_is_taken_up_at_once(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    daybell("migrate", folder=tmp_path)
    with Running(
        *("worker", "app.py", "--processes", "2", "--drain-timeout", "1s"),
        folder=tmp_path,
        DAYBELL_LEASE=f"{LEASE:g}s",
    ) as running:
        running.wait_for(" runs bake of default", times=2)
        ended = daybell("jobs", "trigger", "bake", "--json", folder=tmp_path)
        id = json.loads(ended.out)["execution_id"]
        (line,) = running.wait_for("bakes, attempt 1")

        os.kill(int(re.findall(r"in (\d+)", line)[0]), signal.SIGKILL)
        killed_at = time.monotonic()
        running.wait_for("bakes, attempt 2")

        assert time.monotonic() - killed_at < LEASE / 10
        running.wait_for("1 executions were taken from it")
        running.signal(signal.SIGTERM)
        assert running.end() == 0
    shown = json.loads(daybell("executions", "show", id, "--json", folder=tmp_path).out)
    assert (shown["status"], shown["attempt"]) == ("succeeded", 2)

"""What a killed process of several ran goes to the others at once, not when its lease has ended."""

import json
import os
import re
import signal
import time

import pytest

from tests.cli.terminal import Running, daybell

APP = """\
import asyncio, os, sys, time
from daybell import App, Context

app = App()

@app.task
def bake(ctx: Context) -> None:
    print(f"bakes, attempt {ctx.attempt}, in {os.getpid()}", flush=True)
    while ctx.attempt == 1:
        time.sleep(0.01)

@app.task
def leave(ctx: Context) -> None:
    print(f"leaves, attempt {ctx.attempt}", flush=True)
    if ctx.attempt == 1:
        os._exit(0)

async def exit() -> None:
    sys.exit(0)

@app.task
async def start_exit(ctx: Context) -> None:
    print(f"starts, attempt {ctx.attempt}", flush=True)
    if ctx.attempt == 1:
        started = asyncio.create_task(exit())
        await asyncio.sleep(3600)
"""
LEASE = 300.0
READY = " runs bake, leave, start_exit of default"


def test_what_a_killed_process_ran_is_taken_up_at_once(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    daybell("migrate", folder=tmp_path)
    with Running(
        *("worker", "app.py", "--processes", "2", "--drain-timeout", "60s"),
        folder=tmp_path,
        DAYBELL_LEASE=f"{LEASE:g}s",
    ) as running:
        running.wait_for(READY, times=2)
        ended = daybell("jobs", "trigger", "bake", "--json", folder=tmp_path)
        id = json.loads(ended.out)["execution_id"]
        (line,) = running.wait_for("bakes, attempt 1")

        os.kill(int(re.findall(r"in (\d+)", line)[0]), signal.SIGKILL)
        killed_at = time.monotonic()
        running.wait_for("bakes, attempt 2")

        assert time.monotonic() - killed_at < LEASE / 2
        running.wait_for("1 executions were taken from it")
        running.signal(signal.SIGTERM)
        assert running.end() == 0
    shown = json.loads(daybell("executions", "show", id, "--json", folder=tmp_path).out)
    assert (shown["status"], shown["attempt"]) == ("succeeded", 2)


@pytest.mark.parametrize(("task", "says"), [("leave", "leaves"), ("start_exit", "starts")])
def test_a_task_that_ends_its_process_with_exit_code_0_does_not_end_the_fleet(task, says, tmp_path):
    (tmp_path / "app.py").write_text(APP)
    daybell("migrate", folder=tmp_path)
    with Running(
        *("worker", "app.py", "--processes", "2", "--drain-timeout", "60s"),
        folder=tmp_path,
        DAYBELL_LEASE=f"{LEASE:g}s",
    ) as running:
        running.wait_for(READY, times=2)
        ended = daybell("jobs", "trigger", task, "--json", folder=tmp_path)
        id = json.loads(ended.out)["execution_id"]

        running.wait_for("ended with exit code 0 without having drained and is started again")
        running.wait_for(f"{says}, attempt 2")
        running.wait_for(READY, times=3)
        running.signal(signal.SIGTERM)
        assert running.end() == 0
    shown = json.loads(daybell("executions", "show", id, "--json", folder=tmp_path).out)
    assert (shown["status"], shown["attempt"]) == ("succeeded", 2)

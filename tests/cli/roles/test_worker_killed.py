"""What a killed process of several ran goes to the others at once, not when its lease has ended."""

import json
import os
import re
import signal

import pytest

from tests.cli.terminal import Running, daybell, run_script, until

APP = """\
import asyncio, os, signal, sys, time
from daybell import App, Batch, Context

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

@app.task(batch=Batch(5, wait="1h"))
def pack(items: list[int]) -> list[str]:
    with open("calls", "a") as file:
        print(sorted(items), file=file)
    if 3 in items:
        os.kill(os.getpid(), signal.SIGKILL)
    return [f"packed {item}" for item in items]

async def enqueue() -> None:
    async with app:
        await pack.enqueue_many({"items": n} for n in range(5))
"""
LEASE = 3600.0  # far longer than anything here is waited for
READY = " runs bake, leave, start_exit, pack of default"


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
        running.wait_for("bakes, attempt 2")

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


def test_a_batch_item_that_kills_its_worker_dies_alone(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    script = tmp_path / "enqueue.py"
    script.write_text("import asyncio, app; asyncio.run(app.enqueue())")
    daybell("migrate", folder=tmp_path)
    assert run_script(script, folder=tmp_path).code == 0

    with Running(
        *("worker", "app.py", "--processes", "2", "--drain-timeout", "60s"),
        folder=tmp_path,
        DAYBELL_LEASE=f"{LEASE:g}s",
    ) as running:
        until(lambda: all(one["finished_at"] for one in packed(tmp_path)))
        running.signal(signal.SIGTERM)
        assert running.end() == 0

    ends = {one["args"]["items"]: (one["status"], one["result"]) for one in packed(tmp_path)}
    assert ends == {n: ("succeeded", f"packed {n}") for n in range(5) if n != 3} | {
        3: ("dead", None)
    }
    first, *alone = map(json.loads, (tmp_path / "calls").read_text().splitlines())
    assert first == [0, 1, 2, 3, 4]
    assert sorted(dict.fromkeys(map(tuple, alone))) == [(n,) for n in range(5)], "all run alone"


def packed(folder):
    """The executions of the batch."""
    listed = daybell("executions", "list", "--job", "pack", "--json", folder=folder)
    ids = [one["execution_id"] for one in json.loads(listed.out)["items"]]
    shown = (daybell("executions", "show", id, "--json", folder=folder) for id in ids)
    return [json.loads(one.out) for one in shown]

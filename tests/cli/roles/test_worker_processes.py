"""Child processes of `daybell worker`, and processes that start afresh."""

import json
import signal

import pytest

from tests.cli.terminal import Running, daybell, is_alive, until

APP = """\
import os, signal, time
from daybell import App

app = App()
count = 0

@app.task
def count_here() -> list[int]:
    global count
    count += 1
    return [os.getpid(), count]

@app.task
def long() -> str:
    print("beginning", flush=True)
    while not os.path.exists("may-end"):
        time.sleep(0.01)
    return "to the end"

@app.task(isolation="process")
def count_in_child() -> list[int]:
    return count_here()

@app.task(isolation="process")
def hang() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print("child", os.getpid(), flush=True)
    signal.pause()
"""
READY = r"worker \S+ \(.*\) runs "


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def result_of(folder, job):
    ended = daybell("jobs", "trigger", job, "--wait", "--json", folder=folder)
    return json.loads(ended.out)["result"]


def trigger(folder, job):
    ended = daybell("jobs", "trigger", job, "--json", folder=folder)
    return json.loads(ended.out)["execution_id"]


def worker_from_the_start(folder, *words):
    """One that will start once more: a fork has not seen how that was done."""
    return Running("worker", "app:app", *words, folder=folder, afresh=True)


def children_of(running):
    return [int(line.split()[-1]) for line in running.wait_for(r"^child \d+$")]


def test_a_worn_process_starts_afresh(folder):
    with worker_from_the_start(folder, "--max-jobs-per-process", "2") as running:
        running.wait_for(READY)
        pid = running.process.pid

        assert [result_of(folder, "count_here") for _ in range(2)] == [[pid, 1], [pid, 2]]
        running.wait_for("has run its number of tasks")
        running.wait_for(READY, times=2)
        assert result_of(folder, "count_here") == [pid, 1]

        running.signal(signal.SIGTERM)
        assert running.end() == 0


def test_a_worn_process_waits_for_what_still_runs(folder):
    words = ["--max-jobs-per-process", "1", "--drain-timeout", "0s"]
    with worker_from_the_start(folder, *words) as running:
        running.wait_for(READY)
        id = trigger(folder, "long")
        running.wait_for("has run its number of tasks")

        (folder / "may-end").touch()

        running.wait_for(READY, times=2)
        shown = json.loads(daybell("executions", "show", id, "--json", folder=folder).out)
        assert (shown["status"], shown["attempt"]) == ("succeeded", 1)


def test_worn_processes_of_a_supervisor_start_afresh(folder):
    words = ["--processes", "2", "--max-jobs-per-process", "1"]
    with Running("worker", "app:app", *words, folder=folder) as running:
        running.wait_for(READY, times=2)

        assert [result_of(folder, "count_here")[1] for _ in range(3)] == [1, 1, 1]
        running.wait_for(READY, times=5)
        assert "started again" not in running.said

        running.signal(signal.SIGTERM)
        assert running.end() == 0


def test_a_child_is_replaced_and_its_worker_is_not(folder):
    words = ["--max-jobs-per-process", "2", "--children", "1"]
    with Running("worker", "app:app", *words, folder=folder) as running:
        running.wait_for(READY)

        ran = [result_of(folder, "count_in_child") for _ in range(3)]

        assert [count for _, count in ran] == [1, 2, 1]
        assert len({pid for pid, _ in ran}) == 2
        assert "has run its number of tasks" not in running.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_children_end_with_their_worker_whatever_they_do(number, folder):
    with Running("worker", "app:app", "--drain-timeout", "0s", folder=folder) as running:
        running.wait_for(READY)
        trigger(folder, "hang")
        pids = children_of(running)

        running.signal(number)
        running.end()

        until(lambda: not any(map(is_alive, pids)))


def test_an_idle_child_ends_with_its_killed_worker(folder):
    with Running("worker", "app:app", folder=folder) as running:
        running.wait_for(READY)
        pid, _ = result_of(folder, "count_in_child")
        assert is_alive(pid)

        running.signal(signal.SIGKILL)

        until(lambda: not is_alive(pid))

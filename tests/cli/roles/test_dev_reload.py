"""`daybell dev --reload`: an app that is changed while it runs."""

import json
import os
import signal
from pathlib import Path

import pytest

from daybell.cli.roles.dev import is_code, source_folders
from tests.cli.terminal import Running, daybell, is_alive, until

UP = r"Daybell .* is up after"
APP = """\
import asyncio
from daybell import App

app = App()

@app.task
async def say() -> str:
    return "{word}"

@app.task
async def nap() -> None:
    print("napping", flush=True)
    await asyncio.sleep(60)
"""


@pytest.fixture
def running(tmp_path):
    """A `dev --reload` that is up, in a folder with app.py."""
    write(tmp_path, "one")
    with Running("dev", "app:app", "--reload", "--port", "0", folder=tmp_path) as running:
        running.wait_for(UP)
        yield running


def write(folder, word):
    (folder / "app.py").write_text(APP.format(word=word))


def said(folder):
    ended = daybell("jobs", "trigger", "say", "--wait", "--json", folder=folder)
    return json.loads(ended.out)["result"]


def children(pid):
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_changed_code_runs_without_a_restart_by_hand(running, tmp_path):
    assert said(tmp_path) == "one"

    write(tmp_path, "two")
    running.wait_for(UP, times=2)

    assert said(tmp_path) == "two"
    assert running.wait_for("reloading: ") == ["reloading: app.py changed"]


def test_an_edit_within_a_second_that_keeps_the_size_is_run(running, tmp_path):
    written = (tmp_path / "app.py").stat()

    replacement = tmp_path / "app.new"
    replacement.write_text(APP.format(word="two"))
    os.utime(replacement, ns=(written.st_atime_ns, written.st_mtime_ns))
    replacement.rename(tmp_path / "app.py")
    running.wait_for(UP, times=2)

    assert said(tmp_path) == "two"


def test_a_mistake_is_shown_and_the_next_change_tried(running, tmp_path):
    (tmp_path / "app.py").write_text("def f(:\n")
    running.wait_for("importing 'app' failed: .*line 1: invalid syntax")
    running.wait_for("ended with exit code 2; waiting for a change")

    write(tmp_path, "two")
    running.wait_for(UP, times=2)

    assert running.process.poll() is None
    assert said(tmp_path) == "two"


def test_what_runs_is_given_back_when_it_does_not_end_soon(running, tmp_path):
    ended = daybell("jobs", "trigger", "nap", "--json", folder=tmp_path)
    id = json.loads(ended.out)["execution_id"]
    running.wait_for("napping")

    write(tmp_path, "two")
    running.wait_for("napping", times=2)

    shown = json.loads(daybell("executions", "show", id, "--json", folder=tmp_path).out)
    assert (shown["status"], shown["failures"], shown["crashes"]) == ("running", 0, 0)


def test_what_is_not_the_apps_code_is_left_alone(running, tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "pyvenv.cfg").write_text("")
    for name in (".git", "venv", "tools/lib", "pkg/__pycache__", "node_modules/x"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "junk.py").write_text("")
    for name in ("other.db", "other.db-wal", "notes.txt"):
        (tmp_path / name).write_text("")

    write(tmp_path, "two")
    running.wait_for(UP, times=2)

    assert running.wait_for("reloading: ") == ["reloading: app.py changed"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_both(number, running):
    (child,) = children(running.process.pid)

    running.signal(number)

    assert running.end() == 0
    assert "Traceback" not in running.said
    assert running.lines[-1] == "stopped"
    assert not is_alive(child)


def test_a_signal_ends_the_wait_for_a_change(running, tmp_path):
    (tmp_path / "app.py").write_text("raise SystemExit\n")
    running.wait_for("waiting for a change")

    running.signal(signal.SIGINT)

    assert running.end() == 0


def test_the_app_ends_with_its_watcher(running):
    (child,) = children(running.process.pid)

    running.signal(signal.SIGKILL)

    until(lambda: not is_alive(child))


@pytest.mark.parametrize("words", [["--demo"], []])
def test_there_must_be_something_to_watch(words, tmp_path):
    ended = daybell("dev", "--reload", *words, folder=tmp_path)

    assert ended.code == 2
    assert ended.err.startswith("error: ")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("app.py", True),
        ("pkg/deep/tasks.py", True),
        ("daybell.toml", True),
        ("daybell.db", False),
        ("pkg/__pycache__/tasks.py", False),
        (".git/hook.py", False),
        (".venv/lib/x.py", False),
        ("other-venv/lib/x.py", False),
        ("README.md", False),
        ("../elsewhere.py", False),
    ],
)
def test_code_is_told_from_the_rest(name, expected, tmp_path):
    (tmp_path / "other-venv").mkdir()
    (tmp_path / "other-venv" / "pyvenv.cfg").write_text("")

    assert is_code((tmp_path / name).resolve(), [tmp_path]) is expected


def test_the_folders_of_an_app_are_found_without_importing_it(tmp_path, monkeypatch):
    (tmp_path / "src" / "shop").mkdir(parents=True)
    (tmp_path / "src" / "shop" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(tmp_path / "src")

    by_file = source_folders("../src/shop/app.py")
    by_module = source_folders("shop.app:app")
    unknown = source_folders("nothing_like_it:app")

    assert by_file == [tmp_path / "src"]
    assert by_module == [tmp_path / "here", tmp_path / "src" / "shop"]
    assert unknown == [tmp_path / "here"]

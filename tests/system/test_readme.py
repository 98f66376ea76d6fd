"""The first minute with Daybell, as the README describes it."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cli.terminal import Running, environment

README = (Path(__file__).parents[2] / "README.md").read_text()


def block_with(text: str) -> str:
    """The first code block that contains the text."""
    blocks = re.findall(r"^```\w+\n(.*?)^```$", README, re.M | re.S)
    return next(block for block in blocks if text in block)


def test_the_first_task_works_as_written(tmp_path):
    (tmp_path / "app.py").write_text(block_with("app = App()"))
    first, second = block_with("daybell dev app:app"), block_with("from app import")
    words = first.split()[1:]
    here = str(Path(sys.executable).parent)

    with Running(*words, "--port", "0", folder=tmp_path) as running:
        running.wait_for("health")
        done = subprocess.run(
            ["bash", "-e", "-c", second],
            cwd=tmp_path,
            env=environment() | {"PATH": f"{here}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=300,
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Hello, Ada\n")
    assert '"Hello, Grace"' in done.stdout
    assert done.stdout.count("succeeded") == 3  # the second one's end, and both in the list


def test_the_first_job_without_code_works_as_written(tmp_path):
    asked = block_with("df -h")
    here = str(Path(sys.executable).parent)

    with Running("dev", "--port", "0", folder=tmp_path) as running:
        running.wait_for("health")
        done = subprocess.run(
            ["bash", "-e", "-c", asked],
            cwd=tmp_path,
            env=environment() | {"PATH": f"{here}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=300,
        )

    assert done.returncode == 0, done.stderr
    assert "succeeded" in done.stdout
    assert re.search(r"stdout +Filesystem", done.stdout)  # a line of its log
    assert "command: df -h ." in (tmp_path / "disk.yaml").read_text()
    assert "~ disk" in done.stdout  # it belongs to nobody's files yet


def test_the_api_answers_as_written(tmp_path):
    """Line by line what the requests of the section have answered."""
    asked = block_with("daily-report")
    tools = curl_in(tmp_path / "bin")

    with Running("dev", "--demo", "--port", "0", folder=tmp_path) as running:
        url = running.wait_for("  api ")[-1].split()[1].rstrip(",")
        done = subprocess.run(
            ["bash", "-e", "-c", asked.replace("http://127.0.0.1:8080/api/v1", url)],
            cwd=tmp_path,
            env=environment() | {"PATH": f"{tools}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=300,
        )

    assert done.returncode == 0, done.stderr
    extract, load, report, pending, run, standing, of_worker, cancelled = map(
        json.loads, done.stdout.splitlines()
    )
    assert (extract["name"], load["name"], report["name"]) == ("extract", "load", "daily-report")
    assert (report["status"], report["dependencies"]) == ("scheduled", ["extract", "load"])
    assert report["next_run_at"].endswith("T00:00:00Z")
    assert [one["name"] for one in pending["items"]] == ["daily-report"]
    assert standing["last_execution"]["execution_id"] == run["execution_id"]
    # On a machine that is busy it may not have begun, or have ended.
    assert standing["progress"] or standing["status"] in ("queued", "running")
    assert len(of_worker["items"]) <= 3 and of_worker["items"]
    assert cancelled["status"] == "cancelled"


def curl_in(folder: Path) -> Path:
    """A folder with curl in it: where there is none, one that can do what the README asks of it."""
    folder.mkdir()
    if shutil.which("curl") is None:
        program = folder / "curl"
        program.write_text(f"#!{sys.executable}\n{inspect.getsource(curl)}\ncurl()\n")
        program.chmod(0o755)
    return folder


def curl() -> None:
    import sys
    import urllib.request

    words = iter(sys.argv[1:])
    method, headers, data, url = "GET", {}, None, ""
    for word in words:
        if word == "-H":
            name, _, value = next(words).partition(": ")
            headers[name] = value
        elif word == "-d":
            data, method = next(words).encode(), "POST"
        elif word == "-X":
            method = next(words)
        elif not word.startswith("-"):
            url = word
    asked = urllib.request.Request(url, data=data, headers=headers, method=method)
    with urllib.request.urlopen(asked, timeout=300) as answer:
        sys.stdout.write(answer.read().decode())


def test_make_run_is_the_demo():
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()

    assert "make run" in README.partition("## ")[0]
    assert "daybell dev --demo" in makefile.partition("\nrun:")[2].partition("\n\n")[0]

"""The first minute with Daybell, as the README describes it."""

import re
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
            timeout=60,
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Hello, Ada\n")
    assert '"Hello, Grace"' in done.stdout
    assert done.stdout.count("succeeded") == 3  # the second one's end, and both in the list


def test_make_run_is_the_demo():
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()

    assert "make run" in README.partition("## ")[0]
    assert "daybell dev --demo" in makefile.partition("\nrun:")[2].partition("\n\n")[0]

"""The benchmarks and the tools fit the code: each module can be imported."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "tools").glob("*.py")]


def test_each_module_of_benchmarks_and_tools_can_be_imported():
    paths = [path.relative_to(ROOT).with_suffix("") for path in FILES if "__" not in path.name]
    names = [".".join(path.parts) for path in paths]
    assert len(names) > 30

    program = "import sys; from importlib import import_module as load; [*map(load, sys.argv[1:])]"
    ended = subprocess.run(
        [sys.executable, "-c", program, *names], cwd=ROOT, capture_output=True, text=True
    )

    assert ended.returncode == 0, ended.stderr

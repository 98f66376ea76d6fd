"""The types that users see: wrong calls are flagged in the editor, right ones are not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("typing_cases.py")
ROOT = CASES.parent.parent.parent


@pytest.mark.slow
def test_an_editor_flags_what_is_wrong_and_nothing_else(tmp_path):
    checker = Path(sys.executable).with_name("basedpyright")
    config = tmp_path / "pyrightconfig.json"
    config.write_text(
        json.dumps(
            {
                "include": [str(CASES)],
                "extraPaths": [str(ROOT / "src")],
                "typeCheckingMode": "strict",
                "pythonVersion": "3.11",
            }
        )
    )

    done = subprocess.run(
        [checker, "--outputjson", "--project", config, "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
        timeout=300,
    )

    lines = CASES.read_text().splitlines()
    marked = {number for number, line in enumerate(lines, 1) if line.endswith("# error")}
    found = {
        problem["range"]["start"]["line"] + 1: problem["message"]
        for problem in json.loads(done.stdout)["generalDiagnostics"]
        if problem["severity"] == "error"
    }
    assert {line: message for line, message in found.items() if line not in marked} == {}
    assert marked - set(found) == set()
    assert len(marked) > 10

"""One failure does not cause another."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLAIN = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
TESTS = """
import gc
import socket


def test_that_fails_with_a_socket_in_a_circle():
    circle = [socket.socket()]
    circle.append(circle)
    raise ValueError


def test_that_collects_garbage():
    gc.collect()
"""


def test_a_test_is_not_blamed_for_what_a_failed_one_has_left(tmp_path):
    (tmp_path / "test_two.py").write_text(TESTS)
    words = ["-q", "-p", "tests.leftovers", "-p", "no:cacheprovider", "-W", "error"]

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--rootdir", tmp_path, tmp_path],
        cwd=ROOT, env=os.environ | PLAIN, capture_output=True, text=True, timeout=300,
    )  # fmt: skip

    assert "1 failed, 1 passed" in ended.stdout, ended.stdout + ended.stderr

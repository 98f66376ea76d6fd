"""A test run passes however it was started."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.inherited import influential, restore_signals

ROOT = Path(__file__).parent.parent
# Each of these failed when it inherited what the test below passes on.
CHOSEN = (
    "tests/cli/test_cli.py::test_ctrl_c_ends_a_running_command_quietly",
    "tests/cli/test_cli.py::test_completion_is_installed",
    "tests/cli/test_cli.py::test_make_run_leaves_the_store_of_the_environment_alone",
    "tests/cli/views/test_transcripts.py::test_ctrl_c_ends_following_at_once",
)


@pytest.mark.slow
def test_a_run_in_the_background_of_another_shell_and_of_make_passes():
    tests = shlex.join([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *CHOSEN])
    given = {"MAKEFLAGS": " -- ARGS=tests/cli/test_cli.py", "ARGS": "tests/cli/test_cli.py"}

    # Ignored signals are what a shell gives to its background jobs.
    ended = subprocess.run(
        ["zsh", "-c", f"trap '' INT HUP QUIT; {tests}; exit $?"],
        executable="/bin/sh",
        cwd=ROOT, env=os.environ | given, capture_output=True, text=True, timeout=300,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture
def ignored():
    """A signal that this process was started to ignore."""
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    yield signal.SIGUSR2
    signal.signal(signal.SIGUSR2, before)


def test_an_ignored_signal_stays_ignored_here_and_is_the_default_in_children(ignored):
    restore_signals()

    os.kill(os.getpid(), ignored)
    code = f"import signal; raise SystemExit(signal.getsignal({ignored}) is signal.SIG_DFL)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 1


def test_settings_of_the_tests_are_kept():
    given = ["DAYBELL_TEST_ALL", "DAYBELL_API_KEY", "PGPASSWORD", "PATH", "https_proxy", "HOME"]

    assert influential(given) == ["DAYBELL_API_KEY", "PGPASSWORD", "https_proxy"]

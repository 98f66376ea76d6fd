"""The example suite passes, and fails if the shop is broken."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Of what is installed here only what the suite needs: each run would import all the rest.
PLUGINS = ("-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider")
SUITE = Path(__file__).parent.parent.parent / "examples" / "testing_suite"


def run_suite(folder):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DAYBELL_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *PLUGINS],
        cwd=folder,
        env=clean | {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_example_suite_passes():
    done = run_suite(SUITE)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ('delay="14d"', 'delay="13d"'),
        ('unique_key=f"ship-{order}"', "unique_key=None"),
        ('Retry.delays("10s", "1m")', 'Retry.delays("11s", "1m")'),
        ("send_email.sync.enqueue(to, ", "send_email.sync.enqueue('x', "),
    ],
)
def test_the_example_suite_notices_a_broken_shop(tmp_path, line, broken):
    folder = shutil.copytree(SUITE, tmp_path / "suite")
    shop = folder / "shop.py"
    source = shop.read_text()
    assert line in source
    shop.write_text(source.replace(line, broken))

    done = run_suite(folder)

    assert done.returncode == 1, done.stdout

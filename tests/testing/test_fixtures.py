"""The fixtures, in a suite of a user's, in a process of its own."""

import os
import subprocess
import sys

SHOP = """
from daybell import App
app = App("postgresql://nobody@127.0.0.1:1/nowhere")
@app.task
def pack(order: int) -> int:
    return order
"""
TESTS = """
from shop import pack

def test_first(daybell_bench):
    pack.sync.enqueue(1)
    assert daybell_bench.enqueued(pack) == [{"order": 1}]

def test_second(daybell_bench):
    assert daybell_bench.executions() == []
    assert daybell_bench.sync.run(pack, 2) == 2
"""
PLUGIN = 'pytest_plugins = ["daybell.testing.fixtures"]\n'
FIXTURE = """
import pytest

@pytest.fixture
def daybell_app():
    from shop import app
    return app
"""


def run_suite(folder, conftest, *args, env=()):
    (folder / "shop.py").write_text(SHOP)
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_shop.py").write_text(TESTS)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DAYBELL_")}
    # What else is installed here is not needed, and every run would import it.
    clean |= {"PYTHONPATH": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args],
        cwd=folder,
        env=clean | dict(env),
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_suite_names_its_app_in_a_fixture(tmp_path):
    done = run_suite(tmp_path, PLUGIN + FIXTURE)

    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_a_suite_names_its_app_in_the_environment(tmp_path):
    done = run_suite(tmp_path, PLUGIN, env={"DAYBELL_APP": "shop:app"}.items())

    assert "2 passed" in done.stdout, done.stdout


def test_without_an_app_the_error_says_what_to_write(tmp_path):
    done = run_suite(tmp_path, PLUGIN)

    assert "2 errors" in done.stdout
    assert "Write a fixture `daybell_app` in conftest.py" in done.stdout


def test_a_suite_that_does_not_ask_gets_nothing(tmp_path):
    (tmp_path / "test_other.py").write_text(
        "import sys\ndef test_it():\n    assert not [m for m in sys.modules if 'daybell' in m]\n"
    )

    all_plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
    done = run_suite(tmp_path, "", "test_other.py", env=all_plugins.items())

    assert "1 passed" in done.stdout, done.stdout


def test_a_bench_needs_no_pytest():
    code = "import sys, daybell.testing; assert 'pytest' not in sys.modules"

    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)

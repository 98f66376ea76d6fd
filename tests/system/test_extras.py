"""A plain installation names the command for each extra that is missing."""

import os
import shlex
import subprocess
import sys

import pytest

# Packages of extras. An import of one fails as if it were not installed.
WITHOUT = """
import sys
away = ["asyncpg", "uvloop", "cryptography", "apprise", "holidays", "pyarrow"]
away += ["opentelemetry", "sentry_sdk", "faststream"]
sys.modules.update(dict.fromkeys(away))
"""
DAYBELL = WITHOUT + "from daybell.cli import main\nmain()\n"
ENQUEUE = """
import asyncio
from daybell import App

app = App("sqlite:///daybell.db")

@app.task
def greet(name):
    return f"Hello, {name}"

async def main():
    async with app.worker():
        handle = await greet.enqueue("Ada")
        print(await handle.result(timeout=300))

asyncio.run(main())
"""
CASES = {
    "secrets": ("secrets set TOKEN", "secrets"),
    "parquet files": ("export --format parquet --output file", "parquet"),
    "public holidays": (
        'jobs create daily --command true --cron "0 9 * * *" --calendar DE',
        "calendars",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a store."""
    made = tmp_path_factory.mktemp("plain")
    assert run(made, DAYBELL, "migrate").returncode == 0
    return made


def run(folder, program, *arguments, text=None):
    environ = os.environ | {"DAYBELL_SECRETS_KEY": "A" * 43 + "="}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env=environ,
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("case", CASES)
def test_a_missing_extra_is_named_with_the_command_to_type(folder, case):
    command, extra = CASES[case]

    ended = run(folder, DAYBELL, *shlex.split(command), text="a value of it\n")

    assert ended.returncode == 2, ended.stderr
    said = ended.stderr.splitlines()
    assert len(said) == 1, ended.stderr
    assert said[0].endswith(f"this needs daybell[{extra}]; run: pip install 'daybell[{extra}]'")


@pytest.mark.parametrize(
    ("variable", "value", "extra"),
    [("DAYBELL_TRACES", "otlp", "otel"), ("DAYBELL_SENTRY_DSN", "https://k@127.0.0.1/1", "sentry")],
)
def test_a_setting_that_needs_an_extra_names_it(folder, monkeypatch, variable, value, extra):
    monkeypatch.setenv(variable, value)

    ended = run(folder, DAYBELL, "scheduler")

    assert ended.returncode == 2, ended.stderr
    assert (
        ended.stderr.endswith(f"pip install 'daybell[{extra}]'\n")
        and len(ended.stderr.splitlines()) == 1
    )


@pytest.mark.parametrize("command", ["doctor", "jobs list", "executions list", "dev --help"])
def test_commands_on_sqlite_need_no_extra(folder, command):
    ended = run(folder, DAYBELL, *command.split())

    assert ended.returncode == 0, ended.stderr


def test_a_worker_on_sqlite_needs_no_extra(folder):
    ended = run(folder, WITHOUT + ENQUEUE)

    assert ended.stdout == "Hello, Ada\n", ended.stderr

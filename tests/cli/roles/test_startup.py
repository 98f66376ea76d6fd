"""Before a worker is up: code that fails or hangs, stores that are away, and Ctrl-C meanwhile."""

import logging
import signal
import socket
import sys
from typing import Any

import asyncpg
import pytest

from daybell.cli.roles.logs import is_not_abandoned
from tests.cli.terminal import Running, daybell
from tests.postgres import Postgres
from tests.stores import POSTGRES

SECRET = "hunter22"
ROLES = [["worker", "app:app"], ["dev", "app:app", "--port", "0"]]

HOOK = """\
import asyncio
from daybell import App

app = App()

@app.on_start
async def load():
    print("loading", flush=True)
    await asyncio.Event().wait()

@app.on_stop
def unload():
    print("unloading", flush=True)
"""


def write_app(folder, url):
    (folder / "app.py").write_text(f"from daybell import App\napp = App({url!r})\n")


def test_the_store_that_the_code_names_is_the_one_that_errors_name(tmp_path):
    write_app(tmp_path, f"postgresql://me:{SECRET}@127.0.0.1:1/jobs")

    ended = daybell("dev", "app:app", "--port", "0", folder=tmp_path, DAYBELL_DEBUG="1")

    assert ended.code == 1
    line = ended.err.splitlines()[-1]
    assert line.startswith("error: postgresql://me:***@127.0.0.1:1/jobs: PostgreSQL cannot be")
    assert SECRET not in ended.err


@pytest.mark.postgres
async def test_advice_is_for_the_store_that_the_code_names(servers, tmp_path):
    async with servers.database(POSTGRES["postgres"]) as url:
        write_app(tmp_path, url)
        plain = daybell("worker", "app:app", folder=tmp_path)
        write_app(tmp_path, url.replace("@", f":{SECRET}@", 1))
        secret = daybell("worker", "app:app", folder=tmp_path)

    assert (plain.code, secret.code) == (1, 1)
    assert f"daybell migrate --database-url {url}" in plain.err
    assert "daybell migrate` with the app's URL as --database-url" in secret.err
    assert SECRET not in secret.err


@pytest.mark.parametrize("words", ROLES)
@pytest.mark.parametrize("hook", ["on_start", "on_stop"])
def test_a_hook_that_fails_is_shown_as_it_is(hook, words, tmp_path):
    (tmp_path / "app.py").write_text(
        f"from daybell import App\napp = App()\n@app.{hook}\n"
        "async def models():\n    raise LookupError('no model')\n"
    )

    with Running(*words, folder=tmp_path) as running:
        if hook == "on_stop":
            running.wait_for("runs jobs without code|health")
            running.signal(signal.SIGTERM)
        assert running.end() == 1

    shown = running.lines[running.lines.index("Traceback (most recent call last):") :]
    assert 'app.py", line 5, in models' in shown[1]
    assert shown[-1] == f"error: an {hook} hook of the app failed: LookupError: no model"
    assert "\n".join(shown).count("no model") == 2  # in the line of code, and in what is said


@pytest.mark.parametrize("words", ROLES)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_hook_that_hangs_is_broken_off(number, code, words, tmp_path):
    (tmp_path / "app.py").write_text(HOOK)
    with Running(*words, folder=tmp_path) as running:
        running.wait_for("loading")

        running.signal(number)

        assert running.end() == code
        assert "unloading" in running.lines
        assert "Traceback" not in running.said


@pytest.mark.parametrize("words", [*ROLES, ["scheduler"]])
def test_a_store_that_does_not_answer_is_not_waited_for_after_ctrl_c(words, folder):
    with socket.create_server(("127.0.0.1", 0)) as server:  # it takes calls and says nothing
        url = f"postgresql://127.0.0.1:{server.getsockname()[1]}/x"
        with Running(*words, folder=folder, DAYBELL_DATABASE_URL=url) as running:
            call, _ = server.accept()

            running.signal(signal.SIGINT)

            assert running.end() == 130
            call.close()
    assert "error" not in running.said


def test_an_import_that_hangs_is_broken_off(tmp_path):
    (tmp_path / "app.py").write_text(
        "import threading\nprint('importing', flush=True)\nthreading.Event().wait()\n"
    )
    with Running("worker", "app:app", folder=tmp_path) as running:
        running.wait_for("importing")

        running.signal(signal.SIGINT)

        assert running.end() == 130
    assert running.lines == ["importing"]


@pytest.mark.parametrize(
    ("code", "shown", "said"),
    [
        (
            "import no_such_library",
            "    import no_such_library",
            f"'no_such_library'; is it installed in this environment ({sys.prefix})?",
        ),
        ("\ndef f(:", "          ^", "app.py, line 2: invalid syntax"),
        (
            "raise SystemExit(3)",
            "    raise SystemExit(3)",
            "'app' ends the program when it is imported",
        ),
    ],
)
def test_an_import_that_fails_says_what_to_do(code, shown, said, tmp_path):
    (tmp_path / "app.py").write_text(code)

    ended = daybell("worker", "app:app", folder=tmp_path)

    assert ended.code == 2
    *_, trace, line = ended.err.splitlines()
    assert trace == shown
    assert line.startswith("error: ")
    assert said in line


def test_the_app_of_the_environment_may_be_a_file(folder):
    (folder / "jobs").mkdir()
    (folder / "app.py").rename(folder / "jobs" / "app.py")
    with Running("worker", folder=folder, DAYBELL_APP="jobs/app.py") as running:
        running.wait_for("runs greet")


def test_an_abandoned_connection_is_not_logged_a_second_time():
    lost = asyncpg.ConnectionDoesNotExistError("connection was closed")
    other = ValueError("a mistake of ours")

    for name, error, is_shown in (
        ("asyncio", lost, False), ("asyncio", other, True), ("daybell.engine", lost, True)
    ):  # fmt: skip
        info = (type(error), error, None)
        record = logging.LogRecord(name, logging.ERROR, "", 0, "Future …", None, info)
        assert is_not_abandoned(record) is is_shown


@pytest.mark.postgres
def test_an_outage_of_postgresql_is_a_line_for_each_that_notices(folder):
    with Postgres(version=POSTGRES["postgres"]) as server:
        variables: Any = {"DAYBELL_DATABASE_URL": server.create_database()}
        daybell("migrate", folder=folder, **variables)
        with Running("worker", "app:app", folder=folder, **variables) as running:
            running.wait_for("runs greet")

            server.stop()
            running.wait_for("claim: PostgreSQL cannot be reached")
            running.wait_for("renew: PostgreSQL cannot be reached")
            server.start()
            running.wait_for("claim works again")
            running.signal(signal.SIGTERM)

            assert running.end() == 0
    assert "Traceback" not in running.said
    assert "asyncpg" not in running.said

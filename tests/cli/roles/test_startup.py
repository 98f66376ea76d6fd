"""Startup of a process: app code, store, host names, and workers with other tasks."""

import logging
import signal
import socket
import sys
from typing import Any

import asyncpg
import pytest

from daybell.cli.roles.logs import is_not_abandoned
from daybell.cli.roles.startup import (
    allowed_names,
    describe_names,
    is_everywhere,
    task_mismatch_warning,
    warn_task_mismatch,
)
from daybell.core.worker import Offer
from daybell.engine.worker import WorkerOptions
from daybell.store.sqlite import SqliteStore
from tests.builders import a_worker
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


# By which names a server is reached.


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]"])
def test_who_listens_everywhere_goes_by_this_machines_names(host, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "desk")
    monkeypatch.setattr(socket, "getfqdn", lambda: "desk.example.org")

    assert is_everywhere(host)
    assert allowed_names(host, ["jobs.example"]) == ("jobs.example", "desk", "desk.example.org")


def test_who_listens_at_one_address_goes_by_what_was_given():
    assert allowed_names("127.0.0.1", ["jobs.example"]) == ("jobs.example",)
    assert allowed_names("desk", []) == ()


def test_a_machine_with_an_odd_name_can_be_used(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "Ana's desk")
    monkeypatch.setattr(socket, "getfqdn", lambda: "")

    assert allowed_names("0.0.0.0", []) == ()


def test_the_names_are_told():
    assert describe_names(["desk"]).startswith(
        "reached as localhost, desk, and by this machine's addresses"
    )


# What a worker is told at its start of others that take its queues and have other tasks.

SHOP = {"sell": "default", "send": "mail"}


def an_offer(tasks, *queues, kinds=("task", "http")):
    return Offer(queues=queues or ("default", "mail"), kinds=kinds, tasks=tasks)


def options(tasks=SHOP, queues="default,mail", kinds=("task", "http")):
    return WorkerOptions(tasks=tasks, queues=queues, kinds=kinds)


def test_tasks_that_only_one_of_them_has_are_named():
    told = task_mismatch_warning(options(), [an_offer({"sell": "default", "report": "default"})])

    assert told is not None
    assert told.startswith("other live workers of queues 'default' and 'mail' have other tasks:")
    assert "this one has no report; others have no send" in told
    assert "queues of its own" in told


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (an_offer(SHOP | {"new": "default"}), "this one has no new."),
        (an_offer({"sell": "default"}), "others have no send."),
        (an_offer({f"t{n}": "mail" for n in range(9)} | SHOP), "and 4 more"),
    ],
)
def test_so_is_what_only_one_side_lacks(other, said):
    assert said in (task_mismatch_warning(options(), [an_offer(SHOP), other]) or "")


@pytest.mark.parametrize(
    "other",
    [
        an_offer(SHOP),
        an_offer({"sell": "default"}, "default"),  # and does not take the queue of the other task
        an_offer({"bill": "billing"}, "default", "billing", kinds=("http",)),
        an_offer(None),  # of an earlier version: it does not say
        an_offer({}, kinds=("http", "command")),  # without an app it takes no tasks
    ],
)
def test_nothing_is_said_where_nothing_can_go_back(other):
    assert task_mismatch_warning(options(), [other]) is None


def test_nothing_is_said_of_a_shared_queue_that_no_task_is_meant_for():
    billing = an_offer({"bill": "billing"}, "default", "billing")

    assert task_mismatch_warning(options({"sell": "shop"}, "default,shop"), [billing]) is None


@pytest.mark.parametrize(
    "how", [options(None), options({}, kinds=("http",))], ids=["does not say", "no app"]
)
def test_nothing_is_said_to_who_has_no_tasks_to_compare(how):
    assert task_mismatch_warning(how, [an_offer({"report": "default"})]) is None


async def test_it_is_said_once_and_not_in_the_way_of_what_commands_print(capsys):
    store = SqliteStore.in_memory()
    await store.open()
    for _ in range(3):
        other = a_worker(queues=("default",), tasks={"report": "default"})
        await store.queue.register("default", other, lease=60.0)

    await warn_task_mismatch(store, options())

    out, err = capsys.readouterr()
    assert (out, err.count("warning: other live workers of queue 'default'")) == ("", 1)
    await store.close()

"""`daybell worker` and `scheduler`: real processes, real signals, real deaths."""

import json
import os
import re
import signal

import pytest

from tests.cli.terminal import Running, daybell, is_alive, until
from tests.stores import POSTGRES

READY = r"worker \S+ \(.*\) runs "


def worker(folder, *words, **variables):
    return Running("worker", "app:app", *words, folder=folder, **variables)


def workers(folder, *words):
    return json.loads(daybell("workers", "list", *words, "--json", folder=folder).out)["items"]


def trigger(folder, job, args="{}", *words):
    ended = daybell("jobs", "trigger", job, "--args", args, *words, "--json", folder=folder)
    return json.loads(ended.out)


def test_a_worker_says_who_it_is(folder):
    words = ["--queues", "slow=3,default", "--concurrency", "7", "--name", "ada",
             "--labels", "zone=eu, disk=ssd"]  # fmt: skip
    with worker(folder, *words, afresh=True) as running:
        running.wait_for(READY)

        (one,) = workers(folder)

        assert (one["name"], one["capacity"], one["pid"]) == ("ada", 7, running.process.pid)
        assert set(one["queues"]) == {"slow", "default"}
        assert one["labels"] == {"zone": "eu", "disk": "ssd"}


def test_a_worker_names_its_tenant_and_how_many_jobs_it_brings(folder):
    daybell("migrate", folder=folder)
    daybell("tenants", "create", "acme", "--jobs", "1", folder=folder)

    refused = daybell("worker", "app:app", "--tenant", "acme", folder=folder)

    assert (refused.code, refused.out) == (1, "")
    assert re.search(r"the app has \d+ tasks, each a job: tenant 'acme' may have 1 ", refused.err)
    daybell("tenants", "update", "acme", "--jobs", "none", folder=folder)
    with worker(folder, "--tenant", "acme") as running:
        running.wait_for(r"runs .* of tenant acme in ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_drains_when_it_is_asked_to_stop(number, folder):
    with worker(folder) as running:
        running.wait_for(READY)
        id = trigger(folder, "nap", '{"seconds": 1}')["execution_id"]
        running.wait_for("napping")

        running.signal(number)

        assert running.end() == 0
        running.wait_for(
            "asked to stop; 1 execution still runs: waiting up to 30 s; once more ends it at once"
        )
    assert daybell("executions", "wait", id, "--timeout", "1s", folder=folder).code == 0
    assert workers(folder) == []


def test_what_does_not_end_in_time_goes_back_uncharged(folder):
    with worker(folder, "--drain-timeout", "200ms") as running:
        running.wait_for(READY)
        id = trigger(folder, "nap", '{"seconds": 60}')["execution_id"]
        running.wait_for("napping")

        running.signal(signal.SIGTERM)

        assert running.end() == 0
    shown = json.loads(daybell("executions", "show", id, "--json", folder=folder).out)
    assert (shown["status"], shown["failures"]) == ("queued", 0)
    assert shown["attempts"][0]["outcome"] == "released"


def test_a_worker_that_is_asked_to_drain_ends(folder):
    with worker(folder, DAYBELL_LEASE="1s") as running:
        running.wait_for(READY)
        (one,) = workers(folder)

        ended = daybell("workers", "drain", one["worker_id"], folder=folder)

        assert ended.code == 0
        assert running.end() == 0
        assert "asked to drain; nothing runs" in running.said
    assert daybell("workers", "drain", one["worker_id"], folder=folder).code == 1


def test_a_killed_process_is_started_again(folder):
    with worker(folder, "--processes", "2", "--name", "ada") as running:
        running.wait_for(READY, times=2)
        before = {one["name"]: one for one in workers(folder)}
        assert set(before) == {"ada-1", "ada-2"}

        os.kill(before["ada-1"]["pid"], signal.SIGKILL)

        running.wait_for("ended with SIGKILL and is started again in 0.5 s")
        running.wait_for(READY, times=3)
        pids = {one["pid"] for one in workers(folder) if one["name"] == "ada-1"}
        assert pids - {before["ada-1"]["pid"]}
        assert trigger(folder, "greet", "{}", "--wait")["status"] == "succeeded"
        running.signal(signal.SIGTERM)
        assert running.end() == 0
    assert not any(is_alive(one["pid"]) for one in before.values())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_several_processes_drain_together(number, folder):
    with worker(folder, "--processes", "2") as running:
        running.wait_for(READY, times=2)
        id = trigger(folder, "nap", '{"seconds": 1}')["execution_id"]
        running.wait_for("napping")

        running.signal(number)

        assert running.end() == 0
        assert len(running.wait_for("stopped")) == 2
    assert daybell("executions", "wait", id, "--timeout", "1s", folder=folder).code == 0


def test_each_line_of_several_processes_says_whose_it_is(folder):
    with worker(folder, "--processes", "2", "--name", "ada") as running:
        running.wait_for(READY, times=2)
        trigger(folder, "fail")

        running.wait_for(r"^[\d:.]+ ada-[12] dead +\S+ fail after")
        running.signal(signal.SIGTERM)
        assert running.end() == 0
        for name in ("ada-1", "ada-2"):
            running.wait_for(rf"^[\d:]+ {name} INFO +daybell.cli: asked to stop; nothing runs")


def test_a_queue_that_no_task_uses_is_warned_of_once(folder):
    words = ["--queues", "slow,nosuch", "--processes", "2"]
    with worker(folder, *words) as running:
        running.wait_for(READY, times=2)

        said = "warning: no task of the app uses queue 'nosuch'; its tasks use default, slow"
        assert running.wait_for("warning: ") == [said]


@pytest.mark.parametrize("role", ["worker", "dev"])
def test_a_store_that_nobody_else_sees_is_warned_of(role, folder):
    words = ["--port", "0"] if role == "dev" else []
    with Running(role, "app:app", *words, folder=folder, DAYBELL_DATABASE_URL="memory://") as up:
        up.wait_for("warning: memory:// is seen by this process alone")
        up.wait_for("is up after|runs greet")


def test_the_second_signal_kills_all_processes(folder):
    with worker(folder, "--processes", "2") as running:
        running.wait_for(READY, times=2)
        pids = [one["pid"] for one in workers(folder)]
        trigger(folder, "nap", '{"seconds": 60}')
        running.wait_for("napping")
        running.signal(signal.SIGTERM)
        running.wait_for("asked to stop", times=2)

        assert running.insist(signal.SIGTERM) == 143
    until(lambda: not any(map(is_alive, pids)))


def test_processes_end_with_their_supervisor(folder):
    with worker(folder, "--processes", "2") as running:
        running.wait_for(READY, times=2)
        pids = [one["pid"] for one in workers(folder)]

        running.signal(signal.SIGKILL)

        until(lambda: not any(map(is_alive, pids)))
    assert workers(folder) == []  # they said goodbye


def test_processes_that_drain_are_not_started_again(folder):
    with worker(folder, "--processes", "2", DAYBELL_LEASE="1s") as running:
        running.wait_for(READY, times=2)

        for one in workers(folder):
            daybell("workers", "drain", one["worker_id"], folder=folder)

        assert running.end() == 0
        assert len(running.wait_for("has ended and stays so")) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--queues", "a,=2"], "queue name is empty"),
        (["--labels", "zone"], "write labels as key=value"),
        (["--labels", "zone=eu,zone=us"], "label 'zone' is given twice"),
        (["--labels", ",".join(f"l{n}=1" for n in range(33))], "33 labels are too many"),
        (["--labels", f"zone={'x' * 101}"], "has 101 characters; the limit is 100"),
        (["--drain-timeout", "soon"], "drain timeout"),
        (["--name", "a/b"], "worker name"),
        (["--tenant", "a/b"], "tenant name"),
        (["--tenant", "nobody"], "nobody"),
    ],
)
@pytest.mark.parametrize("processes", ["1", "2"])
def test_what_makes_no_sense_is_said_before_anything_runs(words, said, processes, folder):
    ended = daybell("worker", "app:app", "--processes", processes, *words, folder=folder)

    assert ended.code != 0
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_an_app_that_cannot_be_imported_is_shown_once(folder):
    (folder / "app.py").write_text("import nothing_here\n")

    ended = daybell("worker", "app:app", "--processes", "3", folder=folder)

    assert ended.code == 2
    assert ended.err.count("No module named 'nothing_here'") == 1


def test_a_scheduler_looks_after_the_store(folder):
    daybell("migrate", folder=folder)
    with Running("scheduler", folder=folder, afresh=True) as running:
        running.wait_for("looking after sqlite:///daybell.db")
        running.wait_for("leading, epoch 1")

        running.signal(signal.SIGTERM)

        assert running.end() == 0


@pytest.mark.postgres
async def test_workers_share_a_postgresql_store(servers, folder):
    async with servers.database(POSTGRES["postgres"]) as url:
        variables = {"DAYBELL_DATABASE_URL": url}
        daybell("migrate", folder=folder, **variables)
        with worker(folder, "--processes", "2", **variables) as running:
            running.wait_for(READY, times=2)

            ended = daybell(
                "jobs", "trigger", "greet", "--wait", "--timeout", "20s", folder=folder, **variables
            )

            assert ended.code == 0, ended.err
            assert '"Hello, you"' in ended.out
            running.signal(signal.SIGTERM)
            assert running.end() == 0

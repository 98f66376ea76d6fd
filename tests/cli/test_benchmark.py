"""`daybell bench`, also where it is interrupted or killed."""

import json
import signal
import socket
import sqlite3

import pytest

from tests.cli.terminal import Running, daybell, until

PURGE = "daybell queues purge daybell-bench --tenant daybell-bench"
MANY = "2000000"  # more than can be enqueued before a test looks


@pytest.fixture
def place(tmp_path):
    """A folder with a store."""
    assert daybell("migrate", folder=tmp_path).code == 0
    return tmp_path


def enqueued(place):
    with sqlite3.connect(place / "daybell.db") as database:
        return database.execute("SELECT count(*) FROM execution").fetchone()[0]


def pending(place):
    words = ["executions", "list", "--status", "pending", "--tenant", "daybell-bench", "--json"]
    return json.loads(daybell(*words, folder=place).out)["items"]


def test_it_measures_a_store_in_memory(tmp_path):
    ended = daybell("bench", "--jobs", "50", "--database-url", "memory://", folder=tmp_path)

    assert (ended.code, ended.err) == (0, "")
    assert "50 of 50" in ended.out


def test_ctrl_c_is_heeded_while_it_enqueues(place):
    with Running("bench", "--jobs", MANY, folder=place) as running:
        until(lambda: enqueued(place))

        running.signal(signal.SIGINT)

        assert running.end() == 130
    assert pending(place) == []
    assert daybell("bench", "--jobs", "10", folder=place).code == 0


def test_ctrl_c_is_heeded_while_the_store_does_not_answer(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:  # it takes calls and says nothing
        url = f"postgresql://127.0.0.1:{server.getsockname()[1]}/x"
        with Running("bench", folder=tmp_path, DAYBELL_DATABASE_URL=url) as running:
            call, _ = server.accept()

            running.signal(signal.SIGINT)

            assert running.end() == 130
            call.close()
    assert running.said == ""


def test_what_a_killed_one_left_is_cleared_by_the_command_that_the_next_one_names(place):
    with Running("bench", "--jobs", MANY, folder=place) as running:
        until(lambda: enqueued(place))
        running.signal(signal.SIGKILL)
        running.end()

    refused = daybell("bench", "--jobs", "10", folder=place)
    url = f"sqlite:///{place}/daybell.db"
    by_flag = daybell("bench", "--jobs", "10", "--database-url", url, folder=place)
    purged = daybell(*PURGE.split()[1:], "--yes", folder=place)

    assert (refused.code, by_flag.code) == (1, 1)
    assert refused.err.endswith(
        f"of another bench wait on this store; if that was cut off, run: {PURGE}\n"
    )
    assert by_flag.err.endswith(f"run: {PURGE} --database-url {url}\n")
    assert purged.code == 0
    assert daybell("bench", "--jobs", "10", folder=place).code == 0

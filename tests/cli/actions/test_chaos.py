"""`daybell chaos`, also where it is refused, interrupted or killed."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.terminal import Running, daybell, is_alive, until


@pytest.fixture
def place(tmp_path):
    """A folder with a store."""
    assert daybell("migrate", folder=tmp_path).code == 0
    return tmp_path


def children(pid: int) -> set[int]:
    """The processes that a process has started."""
    found = set[int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.add(int(stat.parent.name))
    return found


def test_a_store_in_memory_is_refused(tmp_path):
    ended = daybell("chaos", "--database-url", "memory://", folder=tmp_path)

    assert ended.code == 2
    assert "memory://" in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--restart", "true"], "a file has none"),
        (["--minutes", "1", "--seconds", "1"], "two ways to say the same"),
        (["--lease", "1ms"], "not a usable lease"),
        (["--workers", "1"], "--workers"),
    ],
)
def test_what_makes_no_sense_is_refused(place, words, said):
    ended = daybell("chaos", *words, folder=place)

    assert ended.code == 2
    assert said in ended.err


def test_it_says_what_came_out_as_json(place):
    words = ["--seconds", "3", "--rate", "20", "--workers", "2", "--schedulers", "1", "--json"]

    ended = daybell("chaos", *words, folder=place)

    said = json.loads(ended.out)
    assert (ended.code, said["violations"]) == (0, []), ended.err
    assert said["acknowledged"] > 0
    assert sum(said["faults"].values()) > 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_its_processes_end_with_it(place, how):
    words = ["chaos", "--minutes", "5", "--rate", "20", "--workers", "2"]
    with Running(*words, folder=place, TMPDIR=str(place)) as running:
        running.wait_for(r"enqueued, .* waiting")
        own = children(running.process.pid)

        running.signal(how)
        running.end()

    assert len(own) >= 4
    until(lambda: not any(map(is_alive, own)))
    if how is signal.SIGINT:
        assert running.process.returncode == 130
        assert "Traceback" not in running.said
        assert not list(place.glob("daybell-chaos-*"))
        assert pending(place) == []
    else:
        until(lambda: goes_again(place))


def pending(place):
    words = ["executions", "list", "--status", "pending", "--tenant", "daybell-chaos", "--json"]
    return json.loads(daybell(*words, folder=place).out)["items"]


def goes_again(place):
    """What a killed one left is cleared, as soon as the leases of its workers have ended."""
    ended = daybell("chaos", "--seconds", "1", "--rate", "1", folder=place)
    assert ended.code == 0 or "another chaos run" in ended.err, ended.err
    return ended.code == 0

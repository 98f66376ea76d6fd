"""Jobs that files no longer declare: which of them are deleted, and when nobody is."""

import pytest

from daybell.cli.apply.plan import apply_step
from daybell.client import Client
from daybell.errors import Unavailable
from tests.cli.job_files import PING, REPORT, a_world
from tests.cli.terminal import Typing


@pytest.fixture
def world(monkeypatch, capsys, tmp_path):
    return a_world(monkeypatch, capsys, tmp_path)


def test_only_jobs_of_the_same_set_are_pruned(world):
    world.typed("jobs", "create", "by-hand", "--command", "ls")
    world.write(a=REPORT, b=PING)
    world.applied()
    world.write(a="name: other\ncommand: ls\n", b="name: third\ncommand: ls\n")
    world.applied("--set", "two")
    world.write(a="name: fourth\ncommand: ls\n")
    world.remove("b")

    told = world.applied("--set", "two", "--dry-run")
    asked = world.apply("--set", "two", "--prune")
    before = world.versions()
    done = world.applied("--set", "two", "--prune", "--yes")

    assert "2 jobs of this set are in no file; --prune deletes them: other, third\n" in told
    assert (asked.code, "add --yes" in asked.err) == (2, True)
    assert "fourth" not in before
    assert "- other\n- third\n" in done
    assert "1 created, 2 deleted\n" in done
    assert set(world.versions()) == {"by-hand", "report", "ping", "fourth"}
    assert world.source("fourth") == "apply:two"


def test_who_needs_what_was_pruned_is_named_unless_it_went_too(world):
    world.write(a=REPORT, b=PING, c="name: c\ncommand: ls\ndependencies: [ping]\n")
    world.applied()
    world.typed("jobs", "create", "by-hand", "--command", "ls", "--depends-on", "ping")
    world.remove("b")
    world.remove("c")

    done = world.apply("--prune", "--yes")

    assert done.err == (
        "warning: job by-hand depends on ping, and waits in vain while it is not there\n"
    )


def test_what_was_pruned_is_told_also_if_nobody_knows_who_needs_it(world, monkeypatch):
    world.write(a=REPORT, b=PING)
    world.applied()
    world.remove("b")

    async def warnings(client, name, *, deleting: bool):
        raise Unavailable("Connection refused")

    monkeypatch.setattr(Client, "warnings", warnings)
    done = world.apply("--prune", "--yes")

    assert (done.code, done.err.count("Connection refused")) == (0, 1), done.err
    assert done.out.endswith("1 deleted\n")


def test_a_job_that_is_declared_again_after_it_was_pruned_comes_back(world):
    world.write(a=REPORT, b=PING)
    world.applied()
    world.remove("b")
    world.applied("--prune", "--yes")
    world.write(b=PING)

    again = world.applied()

    assert "+ ping\n" in again
    assert set(world.versions()) == {"report", "ping"}
    assert world.applied() == "= 2 unchanged\nnothing to do\n"


def test_who_prunes_at_a_terminal_is_asked_and_sees_colours(world):
    world.write(a=REPORT, b=PING)
    world.applied()
    world.remove("b")

    terminal = Typing("apply", "jobs", "--prune", folder=world.folder)
    terminal.type("n\n", after="no file declares (ping)?")

    assert terminal.end() == 1
    assert "\x1b[31m- ping\x1b[0m" in terminal.shown
    assert "nothing was done" in terminal.shown
    assert set(world.versions()) == {"report", "ping"}


@pytest.mark.parametrize("words", [[], ["--prune"], ["--yes"], ["--dry-run"]])
def test_an_empty_folder_deletes_nothing_unless_that_is_meant(world, words):
    world.write(a=REPORT)
    world.applied()
    world.write(a="# nothing\n")

    said = world.apply(*words)

    assert (said.code, "there are no jobs in jobs" in said.err) == (2, True)
    assert set(world.versions()) == {"report"}
    assert "1 deleted" in world.applied("--prune", "--yes")
    assert world.versions() == {}


def test_what_somebody_else_changed_meanwhile_is_not_pruned(world, monkeypatch):
    world.write(a=REPORT, b=PING)
    world.applied()
    world.remove("b")

    async def late(client, step, *, source: str) -> None:
        if step.name == "ping":
            await client.apply_job("ping", http="http://example.org", source="apply:other")
        await apply_step(client, step, source=source)

    monkeypatch.setattr("daybell.cli.apply.command.apply_step", late)
    said = world.apply("--prune", "--yes")

    assert (said.code, "is at version 2, not 1" in said.err) == (1, True)
    assert world.versions() == {"ping": 2, "report": 1}

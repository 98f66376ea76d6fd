"""Noticing commits of others: by their log from outside, and only where it has moved by a look."""

import asyncio

import pytest

from daybell.store.sqlite import store as store_module
from daybell.store.sqlite.changes import LOOKS_MAX, Log
from daybell.store.wakeups import pause
from tests.builders import TENANT, defined, enqueued

DEADLINE = 10.0
QUIET_ROUNDS = 20


@pytest.fixture
def commit(raw):
    """Have somebody else commit something."""
    raw.execute("CREATE TABLE other (n INTEGER) STRICT")
    return lambda: raw.execute("INSERT INTO other VALUES (1)")


def resting(path):
    """A log of which everything is known."""
    log = Log(path)
    assert log.is_worth_a_look()
    log.looked(is_new=True)
    log.looked(is_new=False)
    assert not log.is_worth_a_look()
    return log


@pytest.mark.usefixtures("store")
def test_a_commit_is_worth_a_look_and_what_comes_with_its_moment_one_more(path, commit):
    commit()
    log = resting(path)

    commit()

    assert log.is_worth_a_look()
    log.looked(is_new=True)
    assert log.is_worth_a_look()  # another may have the same time, and has come since
    log.looked(is_new=False)
    assert not log.is_worth_a_look()


@pytest.mark.usefixtures("store")
def test_a_commit_that_is_long_on_its_way_to_the_disk_is_looked_for_until_it_is_there(path, commit):
    commit()
    log = resting(path)

    commit()

    for _ in range(LOOKS_MAX - 1):
        assert log.is_worth_a_look()
        log.looked(is_new=False)
    assert log.is_worth_a_look()
    log.looked(is_new=False)
    assert not log.is_worth_a_look()  # it was undone


@pytest.mark.usefixtures("store")
def test_a_file_behind_a_link_has_its_log_beside_itself(path, commit, tmp_path):
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    commit()
    log = resting(str(link))

    commit()

    assert log.is_worth_a_look()


def test_without_a_log_every_look_is_worth_it(tmp_path):
    log = Log(str(tmp_path / "nothing.db"))

    for is_new in (True, False, False):
        assert log.is_worth_a_look()
        log.looked(is_new=is_new)
    assert log.is_worth_a_look()


async def test_a_file_at_rest_is_not_read_and_the_next_commit_of_others_is_heard(
    place, store, monkeypatch
):
    await defined(store)
    looks, rounds, version = [], [], store_module._data_version
    is_quiet, woken = asyncio.Event(), asyncio.Event()

    def noticing(tx):
        looks.append(1)
        return version(tx)

    async def counting(seconds):
        rounds.append(len(looks))
        if len(rounds) > QUIET_ROUNDS and rounds[-1] == rounds[-QUIET_ROUNDS]:
            is_quiet.set()
        await pause(0.001)

    monkeypatch.setattr(store_module, "_data_version", noticing)
    monkeypatch.setattr(store_module, "pause", counting)
    other = place.connect()
    await other.open()

    stop = await store.listen(TENANT, ["default"], woken.set)
    await asyncio.wait_for(is_quiet.wait(), DEADLINE)
    woken.clear()
    await enqueued(other)
    await asyncio.wait_for(woken.wait(), DEADLINE)

    await stop()
    await other.close()

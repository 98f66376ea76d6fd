"""Noticing commits of others: by their log from outside, and only where it has moved by a look."""

import asyncio
import os
import sys

import pytest

from daybell.store.sqlite import connection, wakeups
from daybell.store.sqlite.connection import LOOKS_MAX, Bell, CommitProbe
from daybell.store.wakeups import pause
from tests.builders import TENANT, defined, enqueued

DEADLINE = 60.0
QUIET_ROUNDS = 20


@pytest.fixture
def commit(raw):
    """Have somebody else commit something."""
    raw.execute("CREATE TABLE other (n INTEGER) STRICT")
    return lambda: raw.execute("INSERT INTO other VALUES (1)")


def resting(path):
    """A log of which everything is known."""
    log = CommitProbe(path)
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
    log = CommitProbe(str(tmp_path / "nothing.db"))

    for is_new in (True, False, False):
        assert log.is_worth_a_look()
        log.looked(is_new=is_new)
    assert log.is_worth_a_look()


async def test_a_file_at_rest_is_not_read_and_the_next_commit_of_others_is_heard(
    place, store, monkeypatch
):
    await defined(store)
    looks, rounds, version = [], [], wakeups._data_version
    is_quiet, woken = asyncio.Event(), asyncio.Event()

    def noticing(tx):
        looks.append(1)
        return version(tx)

    async def counting(_, seconds):
        rounds.append(len(looks))
        if len(rounds) > QUIET_ROUNDS and rounds[-1] == rounds[-QUIET_ROUNDS]:
            is_quiet.set()
        await pause(0.001)

    monkeypatch.setattr(wakeups, "_data_version", noticing)
    monkeypatch.setattr(Bell, "wait", counting)
    other = place.connect()
    await other.open()

    stop = await store.listen(TENANT, ["default"], woken.set)
    await asyncio.wait_for(is_quiet.wait(), DEADLINE)
    woken.clear()
    await enqueued(other)
    await asyncio.wait_for(woken.wait(), DEADLINE)

    await stop()
    await other.close()


needs_inotify = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")
FOREVER = 3600.0


async def is_watching(bell):
    while not bell._is_watched:
        await pause(0.001)


@pytest.fixture
async def bell(path):
    """A bell of another process than that of the store."""
    bell = Bell(path)
    bell.open()
    yield bell
    bell.close()


@needs_inotify
async def test_a_commit_of_another_process_is_heard_without_a_poll(place, store, monkeypatch):
    monkeypatch.setattr(wakeups, "WATCH_SECONDS", FOREVER)
    await defined(store)
    other, woken = place.connect(), asyncio.Event()
    await other.open()
    stop = await store.listen(TENANT, ["default"], woken.set)
    await asyncio.wait_for(is_watching(store.wakeups._bell), DEADLINE)

    for _ in range(3):
        woken.clear()
        await enqueued(other)
        await asyncio.wait_for(woken.wait(), DEADLINE)

    await stop()
    await other.close()


@needs_inotify
async def test_a_log_that_was_made_anew_is_watched_again(path, store, bell, tmp_path):
    await defined(store)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bell.wait(FOREVER), 0.001)
    assert bell._is_watched

    os.rename(f"{path}-wal", tmp_path / "gone")
    (tmp_path / "gone").unlink()
    await asyncio.wait_for(bell.wait(FOREVER), DEADLINE)  # it is told of the end
    (tmp_path / f"{path}-wal").touch()
    while not bell._is_watched:
        await bell.wait(0.001)
    Bell(path).ring()
    await asyncio.wait_for(bell.wait(FOREVER), DEADLINE)


@needs_inotify
@pytest.mark.usefixtures("store")
async def test_rings_in_quick_succession_are_answered_together(bell, path, monkeypatch):
    monkeypatch.setattr(connection, "ANSWER_SECONDS", FOREVER)
    await bell.wait(0.001)

    Bell(path).ring()
    await asyncio.wait_for(bell.wait(FOREVER), DEADLINE)  # the first one at once
    for _ in range(3):
        Bell(path).ring()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(bell.wait(FOREVER), 0.02)
    assert bell._answer is not None
    bell._answer_ring()  # as its timer would

    await asyncio.wait_for(bell.wait(FOREVER), DEADLINE)


@needs_inotify
async def test_a_process_that_writes_without_a_pause_rings_seldom_and_once_more(
    place, store, path, monkeypatch
):
    await defined(store)
    rings, ring = [], Bell._ring
    monkeypatch.setattr(Bell, "_ring", lambda bell: (rings.append(1), ring(bell)))
    monkeypatch.setattr(connection, "ANSWER_SECONDS", FOREVER)
    other = place.connect()
    await other.open()

    for _ in range(5):
        await enqueued(other)
    assert len(rings) == 1
    await other.close()  # it may be the last thing that this process does
    assert len(rings) == 2

    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.001)
    bell = Bell(path)
    bell.ring()
    bell.ring()
    while len(rings) < 4:  # by its timer
        await pause(0.001)


async def test_a_ring_changes_no_file_waits_for_nothing_and_needs_no_log(tmp_path):
    log = tmp_path / "x.db-wal"
    log.touch()
    before = log.stat()
    os.mkfifo(tmp_path / "pipe.db-wal")  # to open it would wait for a writer

    Bell(str(tmp_path / "x.db")).ring()
    Bell(str(tmp_path / "pipe.db")).ring()
    Bell(str(tmp_path / "nothing.db")).ring()

    assert log.stat() == before


@pytest.mark.parametrize("lacking", ["inotify_init1", "inotify_add_watch"])
async def test_without_inotify_the_poll_goes_on(place, store, monkeypatch, lacking):
    class Library:
        inotify_init1 = staticmethod(lambda flags: -1 if lacking == "inotify_init1" else os.dup(0))
        inotify_add_watch = staticmethod(lambda descriptor, path, mask: -1)

    await defined(store)
    monkeypatch.setattr(connection, "_inotify", Library)
    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", lambda *_: None)
    other, woken = place.connect(), asyncio.Event()
    await other.open()
    stop = await store.listen(TENANT, ["default"], woken.set)
    woken.clear()
    await enqueued(other)
    await asyncio.wait_for(woken.wait(), DEADLINE)
    await stop()
    await other.close()

"""Watched folders: each content of a file fires once, after it has stopped changing."""

import os

import pytest

from daybell.client.when import build_declared_schedules
from daybell.core import payload
from daybell.core.ids import mint
from daybell.core.job import JobDefinition, NewJob
from daybell.core.views import ExecutionFilter
from daybell.core.when import Schedule
from daybell.engine.files import FileWatcher, WatchRoot, list_files, read_root
from daybell.engine.loop import SystemClock
from daybell.errors import UsageError
from daybell.store.sqlite import SqliteStore
from tests.builders import TENANT
from tests.sdk.waiting import eventually


class Hand:
    """A clock that the test moves."""

    def __init__(self):
        self.time = 0.0

    def monotonic(self):
        return self.time


@pytest.fixture
async def store():
    opened = SqliteStore.in_memory()
    await opened.open()
    await opened.migrate()
    yield opened
    await opened.close()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture
def clock():
    return Hand()


def watcher(store, folder, clock):
    return FileWatcher(store, WatchRoot(TENANT, "in", folder), clock=clock)


async def listening(store, *files, name="load"):
    rules = [Schedule.parse({"file": one, "settle": "2s"}).to_json() for one in files]
    definition = JobDefinition(name=name, schedules=tuple(rules))
    now = (await store.health()).now
    new = build_declared_schedules(definition, tenant=TENANT, now=now)
    job = NewJob(id=mint(), definition=definition, schedules=new)
    await store.catalog.define_jobs(TENANT, [job])


async def fired(store):
    page = await store.catalog.list_executions(TENANT, ExecutionFilter())
    events = [payload.decode(one.args)["event"]["data"] for one in page.items]
    return sorted((one["path"], one["size"]) for one in events)


async def settle(clock, *watchers):
    """Look, wait for longer than files settle, and look again."""
    for _ in range(2):
        for one in watchers:
            await one.tick()
        clock.time += 2.5
    for one in watchers:
        await one.tick()


async def test_a_file_fires_once_after_it_has_stopped_growing(store, folder, clock):
    await listening(store, "in/*.csv")
    one = watcher(store, folder, clock)

    for piece in range(50):  # a slow copy
        with (folder / "a.csv").open("ab") as file:
            file.write(b"0123456789")
        await one.tick()
        clock.time += 1.5
        assert await fired(store) == [], piece
    await settle(clock, one)
    await settle(clock, one)

    assert await fired(store) == [("a.csv", 500)]


async def test_a_file_that_is_moved_in_and_one_that_is_written_over_fire(store, folder, clock):
    await listening(store, "in/*.csv")
    one = watcher(store, folder, clock)
    (folder / "a.tmp").write_bytes(b"12")
    await settle(clock, one)
    assert await fired(store) == []

    (folder / "a.tmp").rename(folder / "a.csv")
    await settle(clock, one)
    assert await fired(store) == [("a.csv", 2)]
    (folder / "a.csv").write_bytes(b"123")
    await settle(clock, one)
    state = (folder / "a.csv").stat()
    (folder / "a.csv").write_bytes(b"321")
    os.utime(folder / "a.csv", ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    await settle(clock, one)

    assert await fired(store) == [("a.csv", 2), ("a.csv", 3), ("a.csv", 3)]


async def test_a_restart_in_the_middle_loses_and_repeats_nothing(store, folder, clock):
    await listening(store, "in/*.csv")
    (folder / "a.csv").write_bytes(b"1")
    await settle(clock, watcher(store, folder, clock))
    (folder / "b.csv").write_bytes(b"22")
    await watcher(store, folder, clock).tick()  # and it ends before the file has settled
    (folder / "c.csv").write_bytes(b"333")  # while none runs

    await settle(clock, watcher(store, folder, clock))

    assert await fired(store) == [("a.csv", 1), ("b.csv", 2), ("c.csv", 3)]


async def test_a_watcher_that_ends_between_event_and_record_repeats_nothing(
    store, folder, clock, monkeypatch
):
    await listening(store, "in/*.csv")
    (folder / "a.csv").write_bytes(b"1")
    one = watcher(store, folder, clock)

    async def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(type(store.schedules), "note_files", killed)
        with pytest.raises(KeyboardInterrupt):
            await settle(clock, one)
    await settle(clock, watcher(store, folder, clock))

    assert await fired(store) == [("a.csv", 1)]


async def test_two_schedulers_on_one_folder_fire_each_file_once(store, folder, clock):
    await listening(store, "in/**/*.csv")
    both = [watcher(store, folder, clock) for _ in range(2)]
    (folder / "deep" / "er").mkdir(parents=True)
    for n in range(20):
        (folder / "deep" / "er" / f"{n}.csv").write_bytes(b"1" * n)

    await settle(clock, *both)
    await settle(clock, *both[::-1])

    assert await fired(store) == sorted((f"deep/er/{n}.csv", n) for n in range(20))


async def test_links_and_other_things_fire_nothing(store, folder, clock, tmp_path):
    await listening(store, "in/**")
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "b").write_bytes(b"x")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path / "out")
    (folder / "gone").symlink_to(tmp_path / "none")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")

    await settle(clock, watcher(store, folder, clock))

    assert await fired(store) == []
    assert list_files(folder) == {}


async def test_a_file_that_comes_back_fires_again(store, folder, clock):
    await listening(store, "in/*")
    one = watcher(store, folder, clock)
    (folder / "a").write_bytes(b"1")
    await settle(clock, one)
    (folder / "a").unlink()
    await one.tick()

    assert await store.schedules.watched_files(TENANT, "in") == {}
    (folder / "a").write_bytes(b"22")
    await settle(clock, one)
    assert await fired(store) == [("a", 1), ("a", 2)]


async def test_a_folder_that_nothing_listens_to_is_not_read(store, folder, clock):
    folder.rmdir()

    assert await watcher(store, folder, clock).tick() is None
    await listening(store, "in/*")
    assert await watcher(store, folder, clock).tick() is None  # and says that it is gone


async def test_a_notice_of_the_system_wakes_the_watcher(store, folder):
    await listening(store, "in/*")
    one = watcher(store, folder, SystemClock())
    one.start()
    try:
        (folder / "a").write_bytes(b"1")
        await eventually(lambda: fired(store), bool)
    finally:
        await one.stop()


@pytest.mark.parametrize("text", ["", "in", "=x", "in=", "/in=.", "in=/none/there"])
def test_a_wrong_root_is_refused(text):
    with pytest.raises(UsageError):
        read_root(text, tenant=TENANT)


def test_a_root_has_a_tenant(folder):
    assert read_root(f"in={folder}", tenant="a") == WatchRoot("a", "in", folder.resolve())
    assert read_root(f"b/in={folder}", tenant="a").tenant == "b"

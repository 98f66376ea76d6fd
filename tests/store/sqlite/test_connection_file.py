"""The file: who may read it, and what is said where no database can be."""

import asyncio
import os
import sqlite3
import stat

import pytest

from daybell.errors import SchemaError, Unavailable, UsageError
from daybell.store.sqlite import SqliteStore, connection
from tests.builders import TENANT, defined, enqueued, steps


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
async def test_files_are_for_their_owner_only_whatever_the_umask(tmp_path):
    path = str(tmp_path / "fresh.db")
    store = SqliteStore(path)

    await store.migrate()
    await store.open()
    await enqueued(store)

    assert [mode(path + end) for end in ("", "-wal", "-shm")] == [0o600] * 3
    await store.close()


async def test_the_mode_of_a_file_that_exists_is_left_alone(tmp_path):
    path = tmp_path / "shared.db"
    path.touch()
    path.chmod(0o640)
    store = SqliteStore(str(path))

    await store.migrate()
    await store.open()

    assert [mode(f"{path}{end}") for end in ("", "-wal", "-shm")] == [0o640] * 3
    checks = {check.name: check for check in (await store.health()).checks}
    assert not checks["permissions"].is_ok
    assert "chmod 600" in checks["permissions"].advice
    await store.close()


async def test_opening_does_not_make_a_file(tmp_path):
    store = SqliteStore(str(tmp_path / "typo.db"))

    with pytest.raises(SchemaError, match=r"typo\.db yet.*daybell migrate"):
        await store.open()

    assert await store.pending_migrations() == steps("sqlite")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", ["open", "migrate", "pending_migrations"])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "not the path of a file"),
        (":memory:?mode=ro", "not the path of a file"),
        ("folder", "is a folder"),
        ("nowhere/daybell.db", "nowhere does not exist; create it"),
        ("pipe", "not an ordinary file"),
        ("letter.txt", "not a SQLite database"),
    ],
)
async def test_a_place_where_no_database_can_be_is_named(tmp_path, monkeypatch, name, says, method):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "letter.txt").write_text("Dear Ada, " * 200)

    with pytest.raises(UsageError, match=says):
        await getattr(SqliteStore(name), method)()

    assert (tmp_path / "letter.txt").read_text() == "Dear Ada, " * 200


async def test_a_database_of_another_program_is_left_alone(tmp_path):
    path = tmp_path / "app.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE migration (id)")
    connection.close()
    before = path.read_bytes()

    for method in ("migrate", "open"):
        with pytest.raises(UsageError, match="another program; give Daybell a file of its own"):
            await getattr(SqliteStore(str(path)), method)()

    assert path.read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
async def test_missing_permissions_are_named(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    path = folder / "daybell.db"
    store = SqliteStore(str(path))
    folder.chmod(0o500)
    with pytest.raises(Unavailable, match="cannot create"):
        await store.migrate()

    folder.chmod(0o700)
    await store.migrate()
    path.chmod(0o000)
    with pytest.raises(Unavailable, match="check that it exists, and its permissions"):
        await store.open()


@pytest.mark.parametrize("name", ["a b.db", "50%.db", "what?.db", "#1.db", "naïve.db", "file:x.db"])
async def test_a_name_is_a_name_whatever_is_in_it(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(name)

    await store.migrate()
    await store.open()
    await store.close()

    assert [entry.name for entry in tmp_path.iterdir()] == [name]


async def test_an_old_sqlite_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))

    with pytest.raises(UsageError, match=r"needs 3\.37\.0 or newer"):
        await SqliteStore(str(tmp_path / "daybell.db")).migrate()


async def test_an_edited_migration_is_noticed(path, raw):
    raw.execute("UPDATE migration SET checksum = 'other'")

    with pytest.raises(SchemaError, match="was applied with another text"):
        await SqliteStore(path).open()


async def test_a_newer_schema_is_refused_only_if_it_says_so(path, raw):
    raw.execute("INSERT INTO migration VALUES (9999, 'future', '', 0, 0)")
    store = SqliteStore(path)
    await store.open()
    await store.close()

    raw.execute("UPDATE migration SET is_breaking = 1 WHERE version = 9999")
    with pytest.raises(SchemaError, match="newer than this program"):
        await store.open()


async def test_both_connections_write_ahead_and_sync_every_commit(store):
    for ask in (store.db.write, store.db.read):
        journal = await ask(lambda tx: tx.execute("PRAGMA journal_mode").fetchone()[0])
        synchronous = await ask(lambda tx: tx.execute("PRAGMA synchronous").fetchone()[0])
        assert (journal, synchronous) == ("wal", 2)


async def test_a_file_that_lost_its_journal_mode_gets_it_back(path, raw):
    assert raw.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    store = SqliteStore(path)

    await store.open()

    checks = {check.name: check.is_ok for check in (await store.health()).checks}
    assert checks["durability"]
    await store.close()


async def test_a_store_serves_several_event_loops(store):
    await defined(store)

    def elsewhere():
        return asyncio.run(enqueued(store, 3))

    there, here = await asyncio.gather(asyncio.to_thread(elsewhere), enqueued(store, 3))

    assert len({*there, *here}) == 6
    assert (await store.catalog.list_queues(TENANT))[0].queued == 6


def test_what_sqlite_says_is_told_in_our_words():
    error = sqlite3.OperationalError("disk I/O error")

    told = connection.translate_error(error, "x.db")

    assert isinstance(told, Unavailable)
    assert str(told) == "x.db: SQLite failed (disk I/O error)"

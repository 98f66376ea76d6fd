"""Upgrades of a file: all steps or none, made once, and refused where they do not fit."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from daybell.errors import SchemaError
from daybell.store import migrate
from daybell.store.sqlite import SqliteStore, upkeep
from tests.builders import TENANT, brings, claim, defined, enqueued, steps

SECOND = "CREATE TABLE second (x INTEGER) STRICT;\n"

OWN = len(steps("sqlite"))
NEXT, THEN = f"{OWN + 1:04}_later", f"{OWN + 2:04}_later"


@pytest.fixture
async def path(tmp_path, clock):
    """A file of this release, with an execution."""
    store = SqliteStore(str(tmp_path / "old.db"), clock=clock.now)
    await store.migrate()
    await store.open()
    await defined(store)
    await enqueued(store)
    await store.close()
    return store.db.path


@pytest.fixture
def later(monkeypatch):
    """Have the program bring these steps after its own."""

    def bring(*sql):
        known = brings(upkeep.PACKAGE, *sql)
        monkeypatch.setattr(migrate, "known_migrations", known)

    return bring


def tables(path):
    with closing(sqlite3.connect(path)) as db:
        return {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}


async def test_an_upgrade_keeps_the_work_of_the_file(path, clock, later):
    later(SECOND + "ALTER TABLE execution ADD COLUMN later TEXT;")
    store = SqliteStore(path, clock=clock.now)
    with pytest.raises(SchemaError, match=f"at version {OWN}; missing: {NEXT}"):
        await store.open()

    assert await store.migrate() == (NEXT,)

    await store.open()
    assert (await claim(store)).one.job == "resize"
    assert (await store.health()).schema == OWN + 1
    await store.close()


async def test_a_step_that_fails_halfway_takes_the_steps_before_it_back(path, later):
    store = SqliteStore(path)
    later(SECOND, "CREATE TABLE third (x INTEGER);\nINSERT INTO nowhere VALUES (1);")

    with pytest.raises(Exception, match="nowhere"):
        await store.migrate()

    assert not tables(path) & {"second", "third"}
    assert await store.pending_migrations() == (NEXT, THEN)
    later(SECOND, "CREATE TABLE third (x INTEGER);")
    assert await store.migrate() == (NEXT, THEN)
    assert tables(path) >= {"second", "third"}


async def test_two_that_upgrade_at_once_make_the_step_once(path, later):
    later(SECOND)

    answers = await asyncio.gather(*(SqliteStore(path).migrate() for _ in range(2)))

    assert sorted(answers) == [(), (NEXT,)]


async def test_a_program_from_before_a_breaking_step_is_refused(path, later, monkeypatch):
    later(SECOND)
    await SqliteStore(path).migrate()
    monkeypatch.undo()

    with pytest.raises(SchemaError, match=rf"{OWN + 1:04} \(later\) is unknown here"):
        await SqliteStore(path).open()


async def test_the_first_tenant_is_as_old_as_the_file(tmp_path, clock):
    store = SqliteStore(str(tmp_path / "new.db"), clock=clock.now)
    await store.migrate()
    await store.open()

    tenant = await store.admin.get_tenant(TENANT)

    assert tenant.created_at == clock.now()
    await store.close()

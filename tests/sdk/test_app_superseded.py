"""Code whose definitions were replaced: what a program is told, and when nothing is to be said."""

import logging

import pytest

from daybell import App, Client, Retry, every
from daybell.client.job_checks import (
    add_versions,
    describe_superseded,
    describe_way_back,
    select_superseded,
)
from daybell.client.jobs import job as load_job
from daybell.core.units import to_iso
from daybell.sdk.isolation import process_info

OLD, NEW = "1m", "5m"


async def sweep() -> None: ...


@pytest.fixture
def start(file_url, caplog):
    """Starts a program with tasks of this timeout; answers what it was warned of."""

    async def started(limit, *, names=("sweep",), tenant="default", twice=False):
        app = App(file_url, tenant=tenant)
        for name in names:
            app.task(name=name, timeout=limit, schedule=every("1h"))(sweep)
        caplog.clear()
        async with app:
            pass
        if twice:
            async with app:
                pass
        return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]

    return started


@pytest.fixture
async def client(file_url):
    """One for the same store."""
    async with Client(file_url, migrate=True) as client:
        yield client


async def test_old_code_is_told_which_version_counts_since_when_and_by_whom(start, client):
    assert await start(OLD) == []
    assert await start(NEW) == []

    (said,) = await start(OLD, twice=True)

    job = await client.job("sweep")
    made = to_iso(int(job.created_at.timestamp()))
    assert (job.version, job.definition.timeout) == (2, 300.0)
    assert "an older version of a job" in said
    assert f"sweep (version 1; current is 2, since {made[:19]}Z by {job.author})" in said
    assert said.endswith("go back with `daybell jobs rollback sweep 1`")


async def test_who_rolls_back_has_the_old_code_be_silent_and_the_new_warned(start, client):
    await start(OLD)
    await start(NEW)
    await client.rollback("sweep", 1, author="ada")

    old, (new,) = await start(OLD), await start(NEW)

    assert old == []
    assert "sweep (version 2; current is 3, since " in new
    assert "Z by ada)" in new
    assert (await client.job("sweep")).version == 3


async def test_of_many_jobs_a_few_are_named(start):
    names = ["a", "b", "c", "d", "e"]
    await start(OLD, names=names)
    await start(NEW, names=names)

    (said,) = await start(OLD, names=names)

    assert "an older version of 5 jobs" in said
    assert "c (version 1; " in said
    assert ") and 2 more. " in said
    assert "d (" not in said
    assert "`daybell jobs rollback a 1`, or `daybell jobs declare APP` for all jobs" in said


async def test_the_way_back_names_the_tenant(start, client):
    await client.ensure_tenant("zoo")
    await start(OLD, tenant="zoo")
    await start(NEW, tenant="zoo")

    (said,) = await start(OLD, tenant="zoo")

    assert "`daybell jobs rollback sweep 1 --tenant zoo`" in said


async def test_a_task_in_a_process_of_its_own_leaves_it_to_its_worker(start, monkeypatch):
    await start(OLD)
    await start(NEW)
    monkeypatch.setattr(process_info, "is_child", True)

    assert await start(OLD) == []


async def test_a_policy_with_a_function_of_its_own_is_not_an_older_version(file_url, caplog):
    for _ in range(2):
        app = App(file_url)
        app.task(retries=Retry.function(lambda failures: failures * 2.0))(sweep)
        async with app:
            pass

    assert not caplog.records


async def test_code_with_a_task_that_was_deleted_has_its_definition_again(start, client):
    await start(OLD)
    await start(NEW)
    await client.delete_job("sweep")

    assert await start(OLD) == []

    assert (await client.job("sweep")).definition.timeout == 60.0


async def test_the_versions_of_an_older_job_are_read_once(start, client, monkeypatch):
    await start(OLD)
    await start(NEW)
    definition = (await client.versions_page("sweep")).items[-1].definition
    reads = []
    list_versions = client.store.catalog.list_versions

    async def counted(tenant, name, **options):
        reads.append(name)
        return await list_versions(tenant, name, **options)

    monkeypatch.setattr(client.store.catalog, "list_versions", counted)
    found = select_superseded([definition], [await load_job(client, "sweep")])
    known = await add_versions(client.store, found)

    assert describe_superseded(known).startswith("sweep (version 1; current is 2, since ")
    assert describe_way_back(known) == "`daybell jobs rollback sweep 1`"
    assert reads == ["sweep"]

"""Who needs a job: what is said when it is deleted."""

import pytest

from daybell import App, Client, every
from daybell.cli.apps import check_missing_jobs
from daybell.cli.doctor.report import check_store
from daybell.client.job_checks import Uses, find_uses
from daybell.errors import JobNotFound
from daybell.settings import Settings

NODES = {"nodes": [{"name": "first", "job": "small"}, {"name": "then", "command": "true"}]}


@pytest.fixture
async def client():
    async with Client("memory://") as opened:
        yield opened


async def a_small_world(client):
    await client.create("small", command="true")
    await client.create("smaller", command="small")
    await client.create("nightly", workflow=NODES, schedule=every("1d"))
    await client.create("follows", command="true", dependencies=["small"])


async def test_those_who_need_a_job_are_found_and_no_others(client):
    await a_small_world(client)

    assert await find_uses(client.store, client.tenant, "small") == Uses(
        workflows=("nightly",), dependents=("follows",)
    )
    assert await find_uses(client.store, client.tenant, "nightly") == Uses()


async def test_a_deletion_warns_of_those_who_need_the_job(client):
    await a_small_world(client)
    for number in range(4):
        await client.create(f"more-{number}", command="true", dependencies=["small"])
    told = [
        "workflow nightly runs small as a node, which fails while it is not there",
        "jobs follows, more-0, more-1 and 2 more depend on small, and wait in vain while it is not"
        " there",
    ]

    before = await client.warnings("small", deleting=True)
    await client.delete_job("small")

    assert before == await client.warnings("small", deleting=True) == told
    assert await client.warnings("nightly", deleting=True) == []
    with pytest.raises(JobNotFound):
        await client.warnings("nothing", deleting=True)


async def test_a_deletion_warns_of_code_that_brings_the_job_back():
    app = App("memory://")

    @app.task
    async def etl() -> None: ...

    async with app:
        client = await app.open()
        await etl.enqueue()
        await client.update("etl", timeout="1m", author="cli:ada")

        assert await client.warnings("etl", deleting=True) == [
            f"etl comes from code ({app.author.removeprefix('code:')}), which brings it back when"
            " it is started next; take it out of the code, too"
        ]


async def test_the_doctor_names_jobs_that_are_missing_and_who_needs_them(client):
    await a_small_world(client)
    assert await check_missing_jobs(client.store) == []
    await client.delete_job("small")

    (one,) = await check_missing_jobs(client.store)

    assert (one.name, one.is_ok) == ("missing jobs", False)
    assert one.found == (
        "there is no job named small (follows waits for it, workflow nightly runs it)"
    )
    await client.pause("nightly")
    await client.delete_job("follows")
    assert await check_missing_jobs(client.store) == []


async def test_it_is_among_what_the_doctor_looks_at(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with Client(url, migrate=True) as client:
        await a_small_world(client)
        await client.delete_job("small")

    found = {one.name: one.is_ok for one in await check_store(Settings(database_url=url))}

    assert found["missing jobs"] is False

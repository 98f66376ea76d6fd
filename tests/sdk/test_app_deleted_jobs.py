"""Jobs that are deleted while programs whose code declares them run."""

import pytest

from daybell import App, Client
from daybell.errors import JobNotFound
from tests.stores import open_place


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def url(request, tmp_path, servers):
    async with open_place(request.param, tmp_path, servers) as place:
        yield place.url if request.param == "postgres" else f"sqlite:///{place.url}"


@pytest.fixture
async def app(url):
    app = App(url)
    yield app
    await app.close()


@pytest.fixture
async def admin(url):
    async with Client(url) as client:
        yield client


async def test_a_program_that_runs_declares_a_deleted_job_again(app: App, admin):
    @app.task(schedule="@daily", overlap="allow")
    async def resize(size: int = 1) -> None:
        pass

    await resize.enqueue()
    await admin.delete_job("resize")

    again = await resize.enqueue(size=2)

    assert again.created
    (schedule,) = await admin.schedules("resize")
    assert schedule.is_declared
    await admin.delete_job("resize")
    assert len(await resize.enqueue_many({"size": n} for n in range(3))) == 3
    await admin.delete_job("resize")
    await app.schedule(resize, "@hourly", name="often")
    assert len(await admin.schedules("resize")) == 2


async def test_a_job_that_the_code_does_not_declare_is_not_made(app, admin):
    await admin.define("other")
    await admin.delete_job("other")

    with pytest.raises(JobNotFound):
        await (await app.client_for()).enqueue("other")

"""The client: its store, its jobs, queues, workers and tenants."""

from datetime import timedelta

import pytest

from daybell.client import Client
from daybell.core.execution import Priority, State
from daybell.core.ids import mint
from daybell.core.retry import Retry
from daybell.errors import (
    ExecutionNotFound,
    JobNotFound,
    NotFound,
    SchemaError,
    TenantNotFound,
    UsageError,
    VersionConflict,
)
from tests.builders import claim, claimed, look, registered, steps


async def test_a_client_made_from_a_url_opens_and_closes_its_store(tmp_path):
    url = f"sqlite:///{tmp_path}/daybell.db"

    async with Client(url, migrate=True) as client:
        await client.define("resize")
        answer = await client.enqueue("resize", {"width": 64})
    async with Client(url) as client:
        found = await client.execution(answer.id)

    assert found.args == {"width": 64}
    with pytest.raises(UsageError, match="not open"):
        await client.jobs()


async def test_a_store_without_a_schema_is_refused_and_let_go(tmp_path):
    client = Client(f"sqlite:///{tmp_path}/daybell.db")

    with pytest.raises(SchemaError, match="daybell migrate"):
        async with client:
            pass
    assert await client.pending_migrations() == steps("sqlite")
    assert await client.migrate() == steps("sqlite")
    assert await client.migrate() == ()
    async with client:
        assert (await client.health()).schema == len(steps("sqlite"))


async def test_a_store_that_was_passed_in_stays_open(store):
    async with Client(store) as client:
        await client.define("resize")

    assert (await store.catalog.get_job("default", "resize")).version == 1


async def test_define_reads_what_people_write(client):
    job = await client.define(
        "thumbnail",
        kind="http",
        queue="images",
        priority="high",
        retries={"retries": 5, "base": "2s"},
        timeout="30s",
        expires=timedelta(hours=1),
        max_crashes=1,
        on_lost="dead",
        store_result=False,
        description="makes small pictures",
        settings={"url": "https://example.org"},
        author="ada",
    )

    definition = job.definition
    assert (job.version, job.author) == (1, "ada")
    assert (definition.queue, definition.priority) == ("images", Priority.HIGH)
    assert definition.retry == Retry.exponential("2s", retries=5)
    assert (definition.timeout, definition.expires) == (30.0, 3600.0)
    assert (definition.max_crashes, definition.on_lost) == (1, "dead")
    assert definition.settings == '{"url":"https://example.org"}'


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"kind": "magic"}, "kind"),
        ({"queue": "a/b"}, "queue"),
        ({"priority": "urgent"}, "priority"),
        ({"retries": -1}, "retries"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": 0}, "timeout"),
        ({"expires": -1}, "expires"),
        ({"expires": "0s"}, "expires"),
        ({"max_crashes": 0}, "max_crashes"),
        ({"on_lost": "cry"}, "on_lost"),
        ({"description": "x" * 2001}, "description"),
        ({"settings": {"x": object()}}, "settings"),
    ],
)
async def test_define_refuses_nonsense_by_name(client, options, field):
    with pytest.raises(UsageError) as error:
        await client.define("thumbnail", **options)

    assert error.value.field == field
    assert [job.name for job in (await client.jobs()).items] == ["resize"]


async def test_a_changed_definition_is_a_new_version(client):
    changed = await client.define("resize", timeout="5s")

    assert changed.version == 2
    assert [job.version for job in (await client.versions_page("resize")).items] == [2, 1]
    assert (await client.job("resize")).definition.timeout == 5.0
    assert (await client.job("resize", version=1)).definition.timeout is None
    with pytest.raises(VersionConflict):
        await client.define("resize", timeout="6s", expect=1)


async def test_jobs_are_listed_in_pages(client):
    await client.define("report")

    page = await client.jobs(limit=1)
    rest = await client.jobs(limit=1, cursor=page.next_cursor)

    assert [job.name for job in (*page.items, *rest.items)] == ["report", "resize"]
    assert [job.name for job in (await client.jobs(prefix="res")).items] == ["resize"]


async def test_a_deleted_job_takes_its_unfinished_executions_along(client, store):
    running = (await claimed(store)).one.id
    queued = (await client.enqueue("resize")).id

    count = await client.delete_job("resize")

    assert count == 2
    assert (await look(store, queued)).state is State.CANCELLED
    assert (await look(store, running)).cancel_requested_at is not None
    with pytest.raises(JobNotFound):
        await client.enqueue("resize")


async def test_queues_are_paused_and_resumed(client, store):
    await client.enqueue("resize")

    await client.pause_queue("default")
    (queue,) = await client.queues()
    assert (queue.is_paused, queue.queued) == (True, 1)
    assert (await claim(store)).executions == []

    await client.resume_queue("default")
    assert len((await claim(store)).executions) == 1


async def test_purging_a_queue_cancels_what_waits_and_spares_the_rest(client, store):
    running = (await claimed(store)).one.id
    await client.enqueue_many("resize", [{}] * 1_500)
    await client.enqueue("resize", delay="1h")
    other = (await client.enqueue("resize", queue="images")).id

    assert await client.purge_queue("default") == 1_501
    assert (await look(store, running)).cancel_requested_at is None
    assert (await look(store, other)).state is State.QUEUED


async def test_workers_are_drained(client, store):
    id = await registered(store)

    await client.drain_worker(id)

    (worker,) = await client.workers()
    assert (worker.worker_id, worker.state) == (id, "draining")
    with pytest.raises(NotFound, match="no live worker"):
        await client.drain_worker(mint())


async def test_tenants_see_their_own(client, store):
    await client.ensure_tenant("acme")
    await client.ensure_tenant("acme")
    acme = Client(store, tenant="acme")
    id = (await client.enqueue("resize")).id

    assert [one.name for one in await client.tenants()] == ["acme", "default"]
    assert (await acme.jobs()).items == ()
    with pytest.raises(ExecutionNotFound):
        await acme.execution(id)
    with pytest.raises(TenantNotFound):
        await Client(store, tenant="nobody").jobs()
    with pytest.raises(UsageError):
        Client(store, tenant="a/b")
    with pytest.raises(UsageError):
        await client.add_tenant("")


async def test_the_store_tells_its_health(client):
    assert (await client.health()).checks

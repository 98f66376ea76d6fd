"""What `daybell doctor` says of executions that nobody can take, whatever their jobs are now."""

from functools import partial

import pytest

from daybell import Client
from daybell.cli.doctor.report import check_store, check_stranded, check_tasks
from daybell.core.lifecycle import after_unknown
from daybell.settings import Settings
from tests.builders import a_worker, apply, claim
from tests.workflows import work

NOW = -60.0  # how late they must be: what is due this moment is late enough


@pytest.fixture
async def client():
    async with Client("memory://") as opened:
        worker = a_worker(queues=("default",), kinds=("task", "http"))
        await opened.store.queue.register(opened.tenant, worker, lease=60.0)
        yield opened


async def problems(client):
    found = await check_stranded(client.store, patience=NOW)
    return [f"{one.found.partition(' since')[0]}; {one.advice}" for one in found]


async def test_what_waits_in_a_queue_that_its_job_has_left_is_named(client):
    await client.create("call", http="https://example.org", queue="slow")
    await client.enqueue("call")
    await client.update("call", queue="default")
    await client.define("greet")
    await client.enqueue("greet", queue="mail")
    await client.enqueue("greet")

    assert await problems(client) == [
        "no live worker of queue 'mail' runs tasks, and 1 execution of greet waits for one;"
        " start one with their app: `daybell worker APP --queues mail`",
        "no live worker of queue 'slow' makes requests, and 1 execution of call waits for one;"
        " start one with `daybell worker --queues slow`",
    ]
    await client.pause_queue("slow")
    await client.pause_queue("mail")
    assert await problems(client) == []


async def test_what_runs_an_older_version_of_another_kind_is_named(client):
    await client.create("sync", command="rsync a b")
    await client.enqueue("sync")

    # As long as the job is like that, it is said of the job.
    assert await problems(client) == []
    await client.update("sync", http="https://example.org")
    (told,) = await problems(client)
    assert "runs commands, and 1 execution of sync waits" in told
    await client.delete_job("sync")
    assert await problems(client) == []


async def test_what_is_due_in_time_is_no_news(client):
    await client.define("greet")
    await client.enqueue("greet", queue="mail")

    assert await check_stranded(client.store) == []


async def test_the_doctor_looks_for_them(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with Client(url, migrate=True) as opened:
        await opened.define("greet")
        await opened.enqueue("greet")
    at_once = partial(check_stranded, patience=NOW)
    monkeypatch.setattr("daybell.cli.doctor.report.check_stranded", at_once)

    names = [one.name for one in await check_store(Settings(database_url=url)) if not one.is_ok]

    assert names == ["overdue executions"]


async def test_the_doctor_does_not_call_fine_what_waits_in_vain(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with Client(url, migrate=True) as opened:
        await opened.define("load")
        node = {"name": "load", "task": "load", "queue": "db"}
        await opened.create("etl", workflow={"nodes": [node]})
        worker = a_worker(queues=("default", "db"), kinds=("http", "workflow"))
        await opened.store.queue.register(opened.tenant, worker, lease=60.0)
        id = (await opened.enqueue("etl")).id
        before = await check_store(Settings(database_url=url))
        await work(opened.store, rounds=1)
        because = (await opened.why(id)).detail
    at_once = partial(check_stranded, patience=NOW)
    monkeypatch.setattr("daybell.cli.doctor.report.check_stranded", at_once)

    told = {one.name: one.found for one in await check_store(Settings(database_url=url))}

    lack = "no live worker of queue 'db' runs tasks"
    assert f"{lack}, and 1 job waits for one: etl" in [one.found for one in before]
    assert lack in told["overdue executions"] and lack in because
    assert "kinds" not in told


async def test_a_node_that_nobody_can_take_is_named_with_its_workflow(client):
    nodes = [{"name": "call", "http": "https://example.org"}, {"name": "disk", "command": "df"}]
    await client.create("etl", workflow={"nodes": nodes})
    await client.enqueue("etl")
    await work(client.store, rounds=1)

    assert await problems(client) == [
        "no live worker of queue 'default' runs commands, and 1 execution of etl waits for one;"
        " start one with `daybell worker --allow-command`"
    ]


async def test_tasks_that_the_workers_do_not_have_are_named(client):
    await client.define("greet")
    await client.create("hello", task="greet")
    await client.create("etl", workflow={"nodes": [{"name": "load", "task": "greet"}]})
    await client.enqueue("etl")
    await work(client.store, rounds=1)
    await client.enqueue("hello")
    assert await check_tasks(client.store) == []

    hands = await claim(client.store, 5)
    moves = [after_unknown(one, delay=60.0) for one in hands.executions]
    await apply(client.store, hands, *moves)

    (told,) = await check_tasks(client.store)
    assert told.found == (
        "2 executions wait for a task that no worker had which took them: greet (of etl and 1 more)"
    )
    assert "`daybell worker APP`" in told.advice

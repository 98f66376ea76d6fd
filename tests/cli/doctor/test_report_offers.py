"""What `daybell doctor` says of jobs that nobody can run, and of secrets that are not set."""

import pytest

from daybell import Client, every
from daybell.cli.doctor.report import check_kinds
from daybell.core.access import NewSecret
from tests.builders import a_worker
from tests.cli.terminal import daybell

SQL = {"connection": "warehouse", "statement": "SELECT 1"}


@pytest.fixture
async def client():
    async with Client("memory://") as opened:
        yield opened


async def problems(client):
    return [
        f"{one.found}; {one.advice}" for one in await check_kinds(client.store) if not one.is_ok
    ]


async def a_live_worker(client, *kinds):
    worker = a_worker(queues=("default",), kinds=kinds)
    await client.store.queue.register(client.tenant, worker, lease=60.0)


async def test_nothing_is_said_where_there_are_no_such_jobs(client):
    await client.define("greet", schedule=every("1h"))
    await client.enqueue("greet")

    assert await check_kinds(client.store) == []


async def test_jobs_that_are_to_run_and_that_nobody_runs_are_named(client):
    await client.create("clean", command="rm -r /tmp/old", schedule=every("1h"))
    await client.create("sync", command="rsync a b")
    await client.create("report", sql=SQL, schedule=every("1d"))
    await client.create("rarely", command="uptime")
    await client.enqueue("sync")
    await a_live_worker(client, "task", "http", "sql:archive")

    assert await problems(client) == [
        "no live worker of queue 'default' runs commands, and 2 jobs wait for one: clean, sync;"
        " start one with `daybell worker --allow-command`",
        "no live worker of queue 'default' knows the connection 'warehouse', and 1 job waits for"
        " one: report; give a worker DAYBELL_CONNECTION_WAREHOUSE",
    ]
    await a_live_worker(client, "command", "sql:warehouse")
    (fine,) = await check_kinds(client.store)
    assert (fine.is_ok, fine.found) == (True, "workers can run every job that is to run")


async def test_a_job_that_is_paused_waits_for_nobody(client):
    await client.create("clean", command="uptime", schedule=every("1h"))
    await client.pause("clean")

    assert await problems(client) == []


async def test_secrets_that_jobs_refer_to_and_that_are_not_set_are_named(client):
    token = {"secret": "API_TOKEN"}
    await client.create("call", http={"url": "https://example.org", "headers": {"x": token}})
    await client.create("run", command="uptime", args={"a": [token, {"secret": "OTHER"}]})
    await client.store.admin.set_secret("default", NewSecret(name="OTHER", key_id="k", sealed=b"x"))

    assert await problems(client) == [
        "not set: API_TOKEN of call, run; set it with `daybell secrets set API_TOKEN`"
    ]
    await client.store.admin.set_secret(
        "default", NewSecret(name="API_TOKEN", key_id="k", sealed=b"x")
    )
    assert await problems(client) == []


async def test_what_is_called_secret_is_none(client):
    await client.create("get", http={"url": "https://example.org", "headers": {"secret": "abc"}})
    await client.create("run", command="uptime", env={"secret": "abc"}, args={"secret": "abc"})
    sql = {"connection": "db", "statement": "SELECT :secret", "parameters": {"secret": "abc"}}
    await client.create("ask", sql=sql)

    assert await problems(client) == []
    for name in ("get", "run", "ask"):
        assert not [one for one in await client.warnings(name) if "abc" in one]


async def test_the_doctor_says_it(tmp_path):
    async with Client(f"sqlite:///{tmp_path}/daybell.db", migrate=True) as client:
        await client.create("clean", command="uptime")
        await client.enqueue("clean")

    ended = daybell("doctor", folder=tmp_path)

    assert ended.code == 1
    assert "runs commands, and 1 job waits for one: clean; start one with" in ended.out


async def test_nodes_that_nobody_runs_are_named_with_their_workflow(client):
    nodes = [{"name": "a", "command": "df"}, {"name": "b", "sql": SQL, "queue": "db"}]
    await client.create("etl", workflow={"nodes": nodes}, schedule=every("1h"))
    await a_live_worker(client, "task", "http", "workflow")

    assert await problems(client) == [
        "no live worker of queue 'default' runs commands, and 1 job waits for one: etl;"
        " start one with `daybell worker --allow-command`",
        "no live worker of queue 'db' knows the connection 'warehouse', and 1 job waits for"
        " one: etl; give a worker DAYBELL_CONNECTION_WAREHOUSE",
    ]

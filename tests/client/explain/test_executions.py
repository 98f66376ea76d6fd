"""Explanations: why an execution has not run, and commands that are advised."""

import pytest

from daybell.client import Client
from daybell.client.explain.executions import explain_idle, find_lack
from daybell.client.retries import RetryOutcome
from daybell.client.workers import describe_lack, describe_start
from daybell.core.execution import Cancellation, Failure, State
from daybell.core.lifecycle import after_unknown, after_wait
from daybell.core.units import to_datetime
from tests.builders import a_step, a_worker, apply, claim, death
from tests.workflows import ETL, work


@pytest.fixture
async def client():
    async with Client("memory://") as opened:
        await opened.define("resize", queue="images")
        yield opened


async def reason(client, enqueued):
    found = await client.why(enqueued.id)
    return found.code


async def kept(client, enqueued):
    return (await client.store.catalog.get_execution(client.tenant, enqueued.id)).execution


async def a_live_worker(client, **options):
    options = {"queues": ("images",), "capacity": 2, **options}
    worker = a_worker(**options)
    await client.store.queue.register(client.tenant, worker, lease=60.0)
    return worker


async def test_nobody_is_there_to_run_it(client):
    made = await client.enqueue("resize")
    await a_live_worker(client, queues=("mail",))

    assert await reason(client, made) == "no_worker"
    assert "--queues images" in (await client.why(made.id)).detail


async def test_its_queue_is_paused(client):
    made = await client.enqueue("resize")
    await a_live_worker(client)
    await client.pause_queue("images")

    assert await reason(client, made) == "queue_paused"


async def test_its_workers_are_draining(client):
    made = await client.enqueue("resize")
    worker = await a_live_worker(client)
    await client.drain_worker(worker.id)

    assert await reason(client, made) == "draining"


async def test_no_worker_has_its_labels(client):
    await client.define("train", requires={"gpu": "a100"}, resources={"memory": "4GB"})
    made = await client.enqueue("train")
    await a_live_worker(client, name="near", queues=("default",), labels={"gpu": "a100"})
    await a_live_worker(client, name="far", queues=("default",))

    found = await client.why(made.id)

    assert found.code == "no_worker_of_kind"
    assert found.detail == (
        "no live worker of queue 'default' has gpu=a100, memory=4GB (the nearest, near, lacks"
        " memory=4GB); start one with `daybell worker --labels gpu=a100 --resources memory=4GB`"
    )


async def test_it_prefers_the_worker_of_its_parent(client):
    await client.define("child", near="parent")
    parent, alone = await client.enqueue("resize"), await client.enqueue("child")
    made = await client.enqueue("child", parent=parent.id)
    await a_live_worker(client, queues=("default",))

    assert (await client.why(made.id)).detail.endswith("; it prefers the worker of its parent")
    assert "parent" not in (await client.why(alone.id)).detail


async def test_no_worker_runs_its_kind(client):
    made = await client.enqueue("resize")
    await a_live_worker(client, kinds=("http",))

    found = await client.why(made.id)

    assert found.code == "no_worker_of_kind"
    assert found.detail == (
        "no live worker of queue 'images' runs tasks; start one with their app:"
        " `daybell worker APP --queues images`"
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"command": "uptime"},
            "no live worker of queue 'default' runs commands; start one with"
            " `daybell worker --allow-command`",
        ),
        (
            {"command": "uptime", "queue": "ops"},
            "no live worker of queue 'ops' runs commands; start one with"
            " `daybell worker --allow-command --queues ops`",
        ),
        (
            {"sql": {"connection": "warehouse", "statement": "SELECT 1"}},
            "no live worker of queue 'default' knows the connection 'warehouse'; give a worker"
            " DAYBELL_CONNECTION_WAREHOUSE",
        ),
        (
            {"notify": {"to": "json://example.org", "body": "hello"}},
            "no live worker of queue 'default' can notify; install daybell[notify] there",
        ),
        (
            {"http": "https://example.org"},
            "no live worker of queue 'default' makes requests; start one with `daybell worker`",
        ),
    ],
)
async def test_what_no_worker_offers_is_named_with_a_way_out(client, fields, said):
    await client.create("nightly", **fields)
    made = await client.enqueue("nightly")
    # The one that could is draining, and another one knows another connection.
    queues = ("default", "ops")
    needs = (await client.job("nightly")).definition.needs
    draining = await a_live_worker(client, queues=queues, kinds=(needs,))
    await client.drain_worker(draining.id)
    await a_live_worker(client, queues=queues, kinds=("task", "sql:archive"))

    found = await client.why(made.id)

    assert (found.code, found.detail) == ("no_worker_of_kind", said)
    assert await explain_idle(client, await kept(client, made)) == said
    await a_live_worker(client, queues=queues, kinds=("task", needs))
    assert await reason(client, made) == "due"
    assert await explain_idle(client, await kept(client, made)) is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"command": "uptime"}, "start one with `daybell worker --allow-command`"),
        (
            {"sql": {"connection": "warehouse", "statement": "SELECT 1"}, "queue": "ops"},
            "start one with `daybell worker --queues ops`, with DAYBELL_CONNECTION_WAREHOUSE in its"
            " environment",
        ),
        (
            {"notify": {"to": "json://example.org", "body": "hello"}},
            "start one with `daybell worker`, where daybell[notify] is installed",
        ),
        ({"http": "https://example.org"}, "start one with `daybell worker`"),
    ],
)
async def test_where_nobody_is_what_the_job_needs_is_named(client, fields, said):
    await client.create("nightly", **fields)
    made = await client.enqueue("nightly")

    found = await client.why(made.id)

    queue = fields.get("queue", "default")
    assert found.detail == f"no live worker takes queue {queue!r}; {said}"


async def test_a_dead_one_says_the_first_line_of_its_error(client):
    error = Failure(type="CommandFailed", message="exit code 3:\ndisk full").to_json()
    made = await client.enqueue("resize")
    hands = await claim(client.store, tenant=client.tenant, queues=["images"])
    await apply(client.store, hands, death(hands.executions[0], error=error), tenant=client.tenant)

    found = await client.why(made.id)

    assert found.code == "dead"
    assert found.detail.endswith("(retries_used_up); its error: CommandFailed: exit code 3")


async def test_it_is_debounced(client):
    await client.define("render", debounce="30s", max_wait="5m")
    made = await client.enqueue("render")

    found = await client.why(made.id)

    assert found.code == "debounced"
    assert found.detail.startswith("it is debounced until ")
    assert "30s more, at " in found.detail
    assert found.next_at is not None


async def test_it_is_not_due(client):
    made = await client.enqueue("resize", delay="1h")

    found = await client.why(made.id)

    assert found.code == "not_due"
    assert found.next_at == to_datetime((await kept(client, made)).run_at)


async def test_the_worker_that_took_it_has_no_such_task(client):
    made = await client.enqueue("resize")
    hands = await claim(client.store, queues=["images"])
    await apply(client.store, hands, after_unknown(hands.one, delay=60.0))

    found = await client.why(made.id)

    assert found.code == "unknown_task"
    assert "start one whose app has it" in found.detail
    assert found.next_at == to_datetime((await kept(client, made)).run_at)


async def test_another_one_of_its_job_has_not_ended(client):
    await client.define("single", overlap="queue")
    await client.enqueue("single")
    second = await client.enqueue("single")

    assert await reason(client, second) == "overlap"


async def test_it_has_ended(client):
    made = await client.enqueue("resize")
    await client.cancel(made.id)

    assert await reason(client, made) == "cancelled"


async def test_a_worker_takes_it_any_moment(client):
    await client.enqueue("resize")
    made = await client.enqueue("resize")
    await a_live_worker(client)

    found = await client.why(made.id)

    assert found.code == "due"
    assert "1 others" in found.detail


async def test_its_tenant_runs_as_many_as_it_may(client):
    await client.update_tenant(client.tenant, running=2)
    for _ in range(2):
        await client.enqueue("resize")
    worker = await a_live_worker(client, capacity=10)
    await claim(client.store, worker=worker.id, tenant=client.tenant, queues=["images"])
    made = await client.enqueue("resize")

    found = await client.why(made.id)

    assert found.code == "quota"
    assert found.detail == "tenant default runs 2 of the 2 executions it may (quota running)"
    await client.update_tenant(client.tenant, running=3)
    assert await reason(client, made) == "due"


async def test_picked_ones_are_cancelled_and_run_again(client):
    one, other = await client.enqueue("resize"), await client.enqueue("resize")
    unknown = str(one.id).replace(str(one.id)[-4:], "0000")

    cancelled = await client.cancel_picked([one.id, other.id, unknown, one.id])
    again = await client.retry_picked([one.id, unknown])

    assert cancelled == {Cancellation.CANCELLED: 2, Cancellation.UNKNOWN: 1}
    assert again == {RetryOutcome.RENEWED: 1, RetryOutcome.UNKNOWN: 1}
    assert (await client.count()).executions == {State.CANCELLED: 2, State.QUEUED: 1}


async def test_it_waits_for_an_event_until_somebody_notices_that_its_time_is_over(client):
    made = await client.enqueue("resize")
    hands = await claim(client.store, queues=("images",))
    wait = a_step(hands.one, event="paid", timeout=1e-6)
    await client.store.runs.record(client.tenant, worker=hands.worker, steps=[wait])
    await apply(client.store, hands, after_wait(hands.one, ran=1.0))

    assert await reason(client, made) == "event"


async def begun_run(client, workflow):
    """A run of which all nodes wait that can be started."""
    await client.create("etl", workflow=workflow)
    made = await client.enqueue("etl")
    await work(client.store, rounds=1)
    return await kept(client, made)


async def test_a_run_says_which_node_nobody_can_run_and_why(client):
    mapped = {"name": "each", "command": ["df", {"item": True}], "map": ["/a", "/b"]}
    run = await begun_run(client, {"nodes": [mapped]})
    await a_live_worker(client, queues=("default",), kinds=("task", "workflow"))

    found, told = await find_lack(client, run), await client.why(run.id)

    assert found is not None and found.execution.node in ("each[0]", "each[1]")
    assert found.code == "no_worker_of_kind"
    assert told.code == "running"
    assert told.lack is not None and told.lack == f"node {found.execution.node}: {found.detail}"
    assert told.detail.endswith(
        f". {found.execution.node}: no live worker of queue 'default' runs commands; start one with"
        " `daybell worker --allow-command`"
    )
    await a_live_worker(client, queues=("default",), kinds=("command",))
    assert await find_lack(client, run) is None
    assert (await client.why(run.id)).lack is None


async def test_a_node_of_a_workflow_in_a_workflow_is_looked_for_too(client):
    await client.create("inner", workflow={"nodes": [{"name": "disk", "command": "df"}]})
    run = await begun_run(client, {"nodes": [{"name": "in", "job": "inner"}]})
    await work(client.store, rounds=1)

    found = await find_lack(client, run)

    assert found is not None and (found.execution.node, found.code) == ("disk", "no_worker")


async def test_of_nodes_that_wait_for_the_same_one_is_looked_at(client, monkeypatch):
    await client.define("resize")
    nodes = [{"name": f"n{n}", "task": "resize", "args": {"n": n}} for n in range(20)]
    run = await begun_run(client, {"nodes": nodes})
    await a_live_worker(client, queues=("default",), kinds=("task", "workflow"))
    asked: list[str] = []
    get_execution = client.store.catalog.get_execution

    async def counting(tenant, id):
        asked.append(id)
        return await get_execution(tenant, id)

    monkeypatch.setattr(client.store.catalog, "get_execution", counting)

    assert await find_lack(client, run) is None
    assert len(asked) == 1


async def test_a_run_that_goes_on_lacks_nothing(client):
    await client.define("resize")
    run = await begun_run(client, ETL)
    await a_live_worker(client, queues=("default",), kinds=("task", "workflow"))

    assert await find_lack(client, run) is None
    assert (await client.why(run.id)).detail.endswith("it waits for extract (queued)")


# What is said where no worker offers what a job needs.


@pytest.mark.parametrize("queue", ["a b", "$(id)"])
def test_a_command_that_is_advised_can_be_copied(queue):
    for advice in (
        describe_lack("command", queue=queue).advice,
        describe_start("http", queue=queue),
    ):
        assert f"--queues '{queue}'`" in advice


def test_a_plain_name_is_not_quoted():
    assert "--queues mail`" in describe_lack("command", queue="mail").advice

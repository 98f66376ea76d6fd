"""Workflows through a client: jobs, runs, restarts, and since when a node was ready."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from daybell import Client
from daybell.cli.doctor.report import check_schedules
from daybell.client import job_checks, runs
from daybell.client import schedules as room
from daybell.client.runs import ItemCounts, RunNode, ready_times
from daybell.core.execution import State
from daybell.core.workflow.graph import GraphEdge
from daybell.errors import (
    Conflict,
    InvalidArguments,
    InvalidWorkflow,
    Unavailable,
    UnknownJob,
    UsageError,
)
from tests.refusals import refuses
from tests.workflows import ETL, work


@pytest.fixture
async def client():
    async with Client("memory://") as opened:
        await opened.define("resize", queue="default", retries=7)
        yield opened


def a_workflow(*nodes, **more):
    return {"nodes": list(nodes), **more}


async def a_run(client, **how):
    await client.create("etl", workflow=ETL)
    id = (await client.enqueue("etl")).id
    done = await work(client.store, **how)
    return id, done


async def test_a_workflow_is_a_job_and_is_told_as_it_can_be_said_again(client):
    job = await client.create("etl", workflow=ETL, schedule="0 2 * * *")

    applied = await client.apply_job("etl", workflow=ETL, schedule="0 2 * * *")

    assert (job.definition.kind, job.definition.needs) == ("workflow", "workflow")
    assert applied.action == "unchanged"
    again = await client.apply_job(**applied.after)
    assert again.action == "unchanged"
    nodes = {one["name"]: one for one in applied.after["workflow"]["nodes"]}
    assert nodes["extract"] == {"name": "extract", "task": "resize", "retries": 7}
    assert ["extract", "a"] in applied.after["workflow"]["edges"]


async def test_a_change_takes_the_place_of_the_whole_graph(client):
    await client.create("etl", workflow=ETL)

    job = await client.update("etl", workflow=a_workflow({"name": "one", "command": "df"}))

    assert job.version == 2
    assert job.definition.settings == '{"nodes":[{"name":"one","command":{"run":"df"}}]}'
    with refuses(InvalidWorkflow, field="workflow.nodes"):
        await client.update("etl", workflow={"nodes": []})
    with refuses(InvalidWorkflow, field="workflow"):
        await client.update("etl", workflow="extract")


@pytest.mark.parametrize(
    ("node", "error", "field", "said"),
    [
        ({"task": "rezise"}, UnknownJob, ".task", "knows no task named 'rezise'"),
        ({"job": "other"}, UnknownJob, ".job", "no job named 'other'; create it first"),
        ({"job": "etl"}, InvalidWorkflow, ".job", "each other without end: etl -> etl"),
        ({"job": "around"}, InvalidWorkflow, ".job", "etl -> around -> etl"),
        ({"tsk": "x"}, InvalidWorkflow, ".tsk", "did you mean 'task'?"),
    ],
)
async def test_what_a_node_names_has_to_be_there(client, node, error, field, said):
    await client.create("etl", command="df")
    await client.create("around", workflow=a_workflow({"name": "x", "job": "etl"}))

    with pytest.raises(error) as refused:
        await client.update("etl", workflow=a_workflow({"name": "n", **node}))

    assert said in str(refused.value)
    assert refused.value.field == f"workflow.nodes[0]{field}"


async def test_a_workflow_takes_no_other_arguments_and_nothing_beside_it(client):
    with pytest.raises(UsageError, match="workflow 'etl' has no parameter 'day'; it takes none"):
        await client.create("etl", workflow=ETL, args={"day": 1})
    with refuses(UsageError, field="workflow"):
        await client.create("etl", workflow=ETL, command="df")


async def test_secrets_of_all_nodes_are_warned_of(client):
    node = {"name": "n", "http": {"url": "https://x", "headers": {"T": {"secret": "ONE"}}}}
    other = {"name": "m", "task": "resize", "args": {"key": {"secret": "TWO"}}}
    await client.create("etl", workflow=a_workflow(node, other))

    told = await client.warnings("etl")

    assert [one.split()[1] for one in told if one.startswith("secret")] == ["ONE", "TWO"]


async def test_what_looks_wrong_with_a_node_is_told(client):
    node = {"name": "n", "command": "df | wc", "queue": "disks"}
    await client.create("etl", workflow=a_workflow(node, {"name": "m", "http": "https://x"}))

    told = await client.warnings("etl")

    assert told[0].startswith("node n: without a shell, '|' is only a word")
    assert [one.partition(",")[0] for one in told[1:]] == [
        "no live worker of queue 'default' begins workflows",
        "no live worker of queue 'disks' runs commands",
        "no live worker of queue 'default' makes requests",
    ]


async def test_a_run_is_shown_from_before_it_begins_to_its_end(client):
    await client.create("etl", workflow=ETL, max_crashes=2)
    id = (await client.enqueue("etl")).id

    waiting = await runs.run(client, id)
    await work(client.store, rounds=2)
    begun = await runs.run(client, id)
    await work(client.store)
    ended = await runs.run(client, id)

    assert waiting is not None and begun is not None and ended is not None
    assert {one.status for one in waiting.nodes} == {State.WAITING}
    assert waiting.percent == 0
    states = {one.name: one.status for one in begun.nodes}
    assert states == {
        "extract": State.SUCCEEDED, "a": State.QUEUED, "b": State.RUNNING,
        "load": State.WAITING, "tell": State.WAITING,
    }  # fmt: skip
    assert (begun.ended, begun.total) == (1, 5)
    assert {one.name: one.status for one in ended.nodes}["tell"] is State.SKIPPED
    b, load = (next(one for one in ended.nodes if one.name == name) for name in ("b", "load"))
    assert b.items is not None and (b.items.total, b.items.ended, b.items.failed) == (3, 3, 0)
    assert (load.kind, load.runs, load.started_at is None) == ("command", None, False)
    assert (await client.execution(id)).status is State.SUCCEEDED
    task = b.execution or load.execution
    assert task is not None and await runs.run(client, task) is None


async def test_lists_leave_nodes_out_unless_they_are_asked_for(client):
    id, _ = await a_run(client)

    assert [one.execution_id for one in (await client.executions()).items] == [id]
    nodes = (await client.executions(parent=id)).items
    assert sorted(str(one.node) for one in nodes) == [
        "a",
        "b[0]",
        "b[1]",
        "b[2]",
        "extract",
        "load",
    ]
    assert len((await client.executions(nodes=True)).items) == 7
    assert (await client.count()).executions == {State.SUCCEEDED: 1}


async def test_a_dead_run_goes_on_with_what_failed(client):
    id, _ = await a_run(client, failing=["a", "b[1]"])

    assert (await client.execution(id)).status is State.DEAD
    before = await runs.run(client, id)
    answer = await client.retry(id)
    done = await work(client.store)
    after = await runs.run(client, id)

    assert (answer.id, answer.created) == (id, False)
    assert done == [["a", "b[1]"], ["load"]]
    assert (await client.execution(id)).status is State.SUCCEEDED
    assert before is not None and after is not None
    assert before.nodes[0].name == "extract" and before.nodes[0].ready_at is not None
    assert after.nodes[0] == before.nodes[0]  # also since when it could have been started


async def test_a_node_that_was_mapped_over_nothing_says_so(client):
    nothing = {"name": "each", "task": "resize", "map": []}
    after = {"name": "after", "task": "resize", "map": {"output": "each"}}
    await client.create("etl", workflow=a_workflow(nothing, after))
    id = (await client.enqueue("etl")).id

    waiting = await runs.run(client, id)
    await work(client.store)
    run = await runs.run(client, id)

    assert run is not None and waiting is not None
    assert [one.items for one in waiting.nodes] == [None, None]
    assert [one.items for one in run.nodes] == [ItemCounts(total=0, ended=0, failed=0)] * 2


async def test_a_run_begins_again_with_a_node_as_another_execution(client):
    id, _ = await a_run(client)

    answer = await client.retry(id, from_="b")
    done = await work(client.store)

    assert answer.id != id and answer.created
    assert done == [["b[0]", "b[1]", "b[2]"], ["load"]]
    assert (await client.execution(answer.id)).status is State.SUCCEEDED
    with refuses(UsageError, field="from"):
        await client.retry(id, from_="c")


async def test_a_cancelled_run_is_retried_from_what_did_not_succeed(client):
    await client.create("etl", workflow=ETL)
    id = (await client.enqueue("etl")).id
    await work(client.store, rounds=2)
    await client.cancel(id)
    await work(client.store)

    assert (await client.execution(id)).status is State.CANCELLED
    answer = await client.retry(id)
    done = await work(client.store)

    assert answer.id != id
    assert done == [["a", "b[0]", "b[1]", "b[2]"], ["load"]]


@pytest.mark.parametrize("by", ["ids", "filter"])
async def test_many_runs_are_retried_like_one(client, by):
    await client.create("etl", workflow=ETL)
    begun = (await client.enqueue("etl")).id
    await work(client.store, rounds=2)
    early = (await client.enqueue("etl")).id
    await client.cancel_picked([begun, early])

    if by == "ids":
        answers = await client.retry_picked([begun, early])
    else:
        answers = await client.retry_many(status="cancelled")
    done = await work(client.store)

    assert answers == {"renewed": 2}
    assert done == [
        ["a", "b[0]", "b[1]", "b[2]", "extract"], ["a", "b[0]", "b[1]", "b[2]", "load"], ["load"],
    ]  # fmt: skip


async def test_a_node_is_retried_with_its_run(client):
    id, _ = await a_run(client, failing=["a"])
    node = next(one for one in (await client.executions(parent=id)).items if one.node == "a")

    with pytest.raises(Conflict, match=f"is node a of run {id}; retry that"):
        await client.retry(node.execution_id)
    await client.enqueue("resize")
    await work(client.store, rounds=0)
    plain = (await client.executions(job="resize")).items[0]
    with refuses(UsageError, field="from"):
        await client.retry(plain.execution_id, from_="a")


async def test_why_says_what_a_run_waits_for(client):
    await client.create("etl", workflow=ETL)
    id = (await client.enqueue("etl")).id
    await work(client.store, rounds=2)
    node = next(one for one in (await client.executions(parent=id)).items if one.node == "a")

    run, of_node = await client.why(id), await client.why(node.execution_id)

    assert run.code == "running"
    assert run.detail.startswith(
        "1 of its 5 nodes have ended; it waits for a (queued), b (running). "
    )
    assert run.detail.endswith(of_node.detail), "what keeps its nodes, keeps it"
    assert of_node.status is State.QUEUED
    assert "workflow" not in of_node.detail


async def test_a_queue_is_purged_of_nodes_as_well(client):
    nodes = [{"name": "a", "task": "resize"}, {"name": "b", "task": "resize", "queue": "slow"}]
    await client.create("etl", workflow=a_workflow(*nodes, edges=[["a", "b"]]))
    id = (await client.enqueue("etl")).id
    await work(client.store)

    assert await client.purge_queue("slow") == 1

    assert (await client.execution(id)).status is State.DEAD
    assert (await client.count(queue="slow", status="pending", nodes=True)).executions == {}


async def test_nodes_of_a_run_that_ended_before_it_began_did_not_run(client):
    await client.create("etl", workflow=ETL)
    with pytest.raises(UsageError, match="workflow 'etl' has no parameter 'day'"):
        await client.enqueue("etl", {"day": 1})
    answer = await client.enqueue("etl")
    await client.cancel(answer.id)

    run = await runs.run(client, answer.id)

    assert run is not None
    assert {one.status for one in run.nodes} == {State.SKIPPED}
    assert (run.ended, run.percent) == (0, 0.0)


PARAMETERISED: dict[str, Any] = {
    "params": ["day"],
    "nodes": [{"name": "n", "task": "resize", "args": {"day": {"param": "day"}}}],
}


async def test_a_changed_workflow_is_called_as_it_is_now(client):
    other = Client(client.store)
    await client.create("etl", workflow=PARAMETERISED)
    await other.enqueue("etl", {"day": 1})

    await client.update("etl", workflow={**PARAMETERISED, "params": ["day", "limit"]})

    # What the other one has kept in mind is no reason to refuse anything.
    await other.enqueue("etl", {"day": 1, "limit": 2})
    with pytest.raises(InvalidArguments, match="must be given limit; it takes day, limit"):
        await other.enqueue("etl", {"day": 1})
    with refuses(InvalidArguments, field="[1].args.limit"):
        await other.enqueue_many("etl", [{"day": 1, "limit": 2}, {"day": 1}])
    await client.update("etl", command="df")
    await other.enqueue("etl", {"x": 1})


async def test_what_a_job_takes_is_asked_for_once(client, monkeypatch):
    await client.create("etl", workflow=PARAMETERISED)
    other, asked = Client(client.store), []
    get_job = client.store.catalog.get_job

    async def counting(tenant, name, **more):
        asked.append(name)
        await asyncio.sleep(0)
        return await get_job(tenant, name, **more)

    monkeypatch.setattr(client.store.catalog, "get_job", counting)
    calls = [other.enqueue("etl", {"day": 1}) for _ in range(5)]
    await asyncio.gather(*calls, *(other.enqueue("resize") for _ in range(5)))

    assert sorted(asked) == ["etl", "resize"]
    await other.enqueue_many("resize", [{}, {}])
    await client.enqueue("resize")
    assert sorted(asked) == ["etl", "resize"], "who has defined it knows it, too"


async def test_jobs_are_asked_for_at_once_and_an_outage_is_waited_for_once(client, monkeypatch):
    names = [f"job{n}" for n in range(3)]
    for name in names:
        await client.define(name)
    other, asked, is_over = Client(client.store), [], asyncio.Event()

    async def down(tenant, name):
        asked.append(name)
        if len(asked) == len(names):
            is_over.set()
        await is_over.wait()
        raise Unavailable("the store does not answer")

    monkeypatch.setattr(client.store.catalog, "get_job", down)
    async with asyncio.timeout(300):
        await asyncio.gather(*(other.enqueue(name) for name in (*names, *names)))

    assert sorted(asked) == names


async def test_a_job_that_becomes_a_workflow_is_noticed(client, monkeypatch):
    other = Client(client.store)
    await client.create("etl", command="df")
    await other.enqueue("etl")
    await client.update("etl", workflow=PARAMETERISED)

    monkeypatch.setattr(job_checks, "OTHERS_KEPT_SECONDS", 0.0)

    with refuses(InvalidArguments, field="args.day"):
        await other.enqueue("etl")


async def test_very_many_runs_are_looked_at_one_by_one(client):
    await client.create("etl", workflow=PARAMETERISED)
    many = [{"day": n} for n in range(10_000)]

    with refuses(InvalidArguments, field="[10000].args.dya"):
        await client.enqueue_many("etl", [*many, {"dya": 1}])

    assert (await client.count()).executions == {}


async def test_schedules_of_a_workflow_have_what_it_takes(client):
    await client.create("etl", workflow=PARAMETERISED)

    with pytest.raises(InvalidArguments, match=r"has the wrong arguments: .* must be given day"):
        await room.schedule(client, "etl", "0 2 * * *")
    with pytest.raises(InvalidArguments, match=r"has the wrong arguments: .* must be given day"):
        await client.update("etl", schedule="0 2 * * *")
    assert (await room.schedule(client, "etl", "0 2 * * *", args={"day": 1})).args == '{"day":1}'


async def test_a_workflow_is_run_by_another_with_what_it_takes(client):
    await client.create("inner", workflow=PARAMETERISED)
    fine = {"name": "x", "job": "inner", "args": {"day": {"output": "y"}}}

    secret = {"day": {"secret": "T"}}
    for args, field in (({}, "day"), ({"day": 1, "dy": 2}, "dy"), (secret, "day")):
        wrong = {"name": "y", "job": "inner", "args": args}
        with pytest.raises(InvalidWorkflow) as refused:
            await client.create("etl", workflow=a_workflow(fine, wrong))
        assert refused.value.field == f"workflow.nodes[1].args.{field}"
    await client.create("etl", workflow=a_workflow(fine, {**fine, "name": "y", "args": {"day": 1}}))


async def test_a_schedule_that_no_longer_fits_the_parameters_is_told(client, monkeypatch):
    await client.create("etl", workflow=PARAMETERISED)
    await room.schedule(client, "etl", "0 2 * * *", args={"day": 1}, name="nightly")
    assert not [one for one in await client.warnings("etl") if "schedule" in one]

    await client.update("etl", workflow=a_workflow({"name": "a", "task": "resize"}))

    vain = "schedule 'nightly', which was added at run time, has the wrong arguments: workflow"
    (told,) = [one for one in await client.warnings("etl") if "schedule" in one]
    assert told.startswith(vain) and "'day'" in told and told.endswith("or unschedule it")
    await client.create("plain", command="ls")
    await room.schedule(client, "plain", "0 2 * * *", args=None, name="nightly")
    monkeypatch.setattr(
        client.store.catalog, "get_job", None
    )  # nor is each job asked for by itself
    (check,) = [one for one in await check_schedules(client.store) if "in vain" in one.name]
    monkeypatch.undo()
    assert not check.is_ok and check.found.startswith(f"etl: {vain}")
    await client.unschedule("etl", "nightly")
    assert not [one for one in await client.warnings("etl") if "schedule" in one]


async def test_a_parameter_that_no_node_uses_is_told(client):
    await client.create("etl", workflow={**PARAMETERISED, "params": ["day", "limit"]})

    told = await client.warnings("etl")
    assert 'parameter limit is used by no node; a node refers to it as {"param": "limit"}' in told


async def test_a_node_that_waits_for_the_quota_says_so(client):
    nodes = [{"name": name, "task": "resize"} for name in "abc"]
    mapped = {"name": "each", "task": "resize", "map": [1, 2, 3], "args": {"row": {"item": True}}}
    await client.create("etl", workflow=a_workflow(*nodes, mapped), schedule="manual")
    await client.update_tenant("default", queued=3)
    id = (await client.enqueue("etl")).id
    await work(client.store, rounds=1)

    run = await runs.run(client, id)

    assert run is not None
    assert {one.name: one.reason for one in run.nodes} == {
        "a": None,
        "b": None,
        "c": "quota",
        "each": "quota",
    }


@pytest.mark.parametrize("most", [0, 100_001, True, "3"])
async def test_max_items_is_a_number_within_its_bounds(client, most):
    node = {"name": "each", "task": "resize", "map": [1], "max_items": most}

    with refuses(InvalidWorkflow, field="workflow.nodes[0].max_items"):
        await client.create("etl", workflow=a_workflow(node))


async def test_max_items_is_for_a_mapped_node_and_bounds_a_list_that_is_written_out(client):
    node = {"name": "each", "task": "resize", "max_items": 2}
    with refuses(InvalidWorkflow, field="workflow.nodes[0].max_items"):
        await client.create("etl", workflow=a_workflow(node))

    with pytest.raises(InvalidWorkflow, match="3 items; the limit is 2"):
        await client.create("etl", workflow=a_workflow({**node, "map": [1, 2, 3]}))

    job = await client.create("etl", workflow=a_workflow({**node, "map": [1, 2]}))
    assert '"max_items":2' in job.definition.settings


# Since when nodes could have been started, which follows from the ends of others.

BEGUN = 100.0
PARENTS = [("a", State.SUCCEEDED, 110.0), ("b", State.DEAD, 120.0), ("c", State.SUCCEEDED, 130.0)]


def a_node(name, status=State.SUCCEEDED, **fields):
    return RunNode(name=name, status=status, **{"execution": UUID(int=1), **fields})


def ready(child, *, parents=PARENTS, begins=(BEGUN,)):
    """When a node was ready that comes after these."""
    nodes = [a_node(name, status, started_at=101.0, finished_at=at) for name, status, at in parents]
    edges = [GraphEdge(name, child.name) for name, _, _ in parents]
    return ready_times([*nodes, child], edges, begins=begins).get(child.name)


@pytest.mark.parametrize(
    ("rule", "at"),
    [
        ("all_done", 130.0),
        ("none_skipped", 130.0),
        ("one_success", 110.0),
        ("one_failed", 120.0),
        ("always", BEGUN),
    ],
)
def test_a_node_is_ready_when_its_parents_have_decided(rule, at):
    assert ready(a_node("last", rule=rule, started_at=140.0)) == at
    assert ready(a_node("last", State.QUEUED, rule=rule)) == at


def test_the_first_nodes_are_ready_when_the_run_begins():
    assert ready(a_node("first", started_at=105.0), parents=[]) == BEGUN
    items = ItemCounts(total=2, ended=0, failed=0)
    assert ready(a_node("each", State.RUNNING, execution=None, items=items), parents=[]) == BEGUN


def test_nothing_is_said_of_what_was_not_begun():
    assert ready(a_node("last", State.SKIPPED, execution=None)) is None
    assert ready(a_node("first"), parents=[], begins=()) is None


def test_what_another_run_had_begun_was_ready_after_the_nodes_before_it():
    taken_over: dict[str, Any] = {"started_at": 140.0, "finished_at": 150.0}

    assert ready(a_node("last", **taken_over), begins=(500.0,)) == 130.0
    assert ready(a_node("first", **taken_over), parents=[], begins=(500.0,)) is None


def test_what_a_retry_has_kept_was_ready_when_it_was():
    kept: dict[str, Any] = {"started_at": 140.0, "finished_at": 150.0}

    assert ready(a_node("last", **kept), begins=(500.0, BEGUN)) == 130.0
    assert ready(a_node("first", **kept), parents=[], begins=(500.0, BEGUN)) == BEGUN
    items = ItemCounts(total=2, ended=2, failed=0)
    partly = a_node("each", execution=None, items=items, started_at=140.0, finished_at=510.0)
    assert ready(partly, parents=[], begins=(500.0, BEGUN)) == BEGUN


def test_a_run_that_begins_again_waits_from_then_on():
    assert ready(a_node("last", rule="all_done", started_at=600.0), begins=(500.0, BEGUN)) == 500.0


def test_nothing_is_ready_after_it_has_started():
    assert ready(a_node("last", rule="all_done", started_at=125.0)) == 125.0

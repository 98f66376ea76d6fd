"""Workflows over the API: jobs of them, their runs, and beginning again."""

import pytest

from tests.workflows import ETL, work


def errors_of(answer):
    return {one["field"]: one["message"] for one in answer.json()["errors"]}


@pytest.fixture
async def run(http, client):
    """A run of a workflow that has been posted, in which node `a` has failed."""
    await client.update("resize", queue="default")
    answer = await http.post("/jobs", json={"name": "etl", "workflow": ETL})
    assert answer.status_code == 201, answer.text
    await work(client.store, failing=["a"], results={"b[1]": {"secret": "X"}})
    return answer.json()["execution_id"]


async def test_a_workflow_is_posted_and_runs_once_now(http, client, run):
    job = (await http.get("/jobs/etl")).json()

    assert (job["kind"], job["status"]) == ("workflow", "dead")
    assert [one["name"] for one in job["workflow"]["nodes"]] == [
        "extract", "a", "b", "load", "tell",
    ]  # fmt: skip
    assert job["last_execution"]["execution_id"] == run


async def test_a_run_shows_its_nodes_edges_progress_and_timeline(http, client, run):
    said = (await http.get(f"/executions/{run}")).json()

    graph = said["workflow"]
    nodes = {one["name"]: one for one in graph["nodes"]}
    assert {name: one["status"] for name, one in nodes.items()} == {
        "extract": "succeeded", "a": "dead", "b": "succeeded", "load": "skipped",
        "tell": "succeeded",
    }  # fmt: skip
    assert nodes["load"]["reason"] == "upstream_failed"
    assert nodes["b"]["items"] == {"total": 3, "ended": 3, "failed": 0}
    assert (nodes["a"]["kind"], nodes["a"]["task"], nodes["a"]["job"]) == ("task", "resize", None)
    assert {"from": "b", "to": "tell", "when": "len(result)"} in graph["edges"]
    assert graph["progress"] == {"ended": 5, "total": 5}
    assert said["progress"] == 100
    of_a = [one["event"] for one in said["timeline"] if one.get("node") == "a"]
    assert of_a == ["ready", "started", "dead"]
    assert nodes["a"]["ready_at"] and nodes["load"]["ready_at"] is None
    assert all(nodes[name]["started_at"] for name in ("extract", "a", "b"))


async def test_nodes_are_listed_with_their_run_and_say_what_they_are(http, client, run):
    def names(answer):
        return sorted(str(one["node"]) for one in answer.json()["items"])

    listed = await http.get("/executions", params={"workflow_id": run})
    assert names(listed) == ["a", "b[0]", "b[1]", "b[2]", "extract", "tell"]
    assert all(one["workflow_id"] == run for one in listed.json()["items"])
    assert names(await http.get("/executions")) == ["None"]
    assert len(names(await http.get("/executions", params={"nodes": True}))) == 7
    assert (await http.get("/counts")).json()["executions"] == {"dead": 1}
    of_node = listed.json()["items"][0]["execution_id"]
    assert (await http.get(f"/executions/{of_node}")).json()["workflow"] is None


async def test_a_retry_goes_on_with_what_failed_or_from_a_node(http, client, run):
    again = await http.post(f"/executions/{run}/retry")
    said = {"execution_id": run, "status": "queued", "created": False}
    assert (again.status_code, again.json()) == (202, said)
    assert await work(client.store) == [["a"], ["load"]]

    other = await http.post(
        f"/executions/{run}/retry", json={"from": "b"}, headers={"Idempotency-Key": "k"}
    )
    same = await http.post(
        f"/executions/{run}/retry", json={"from": "b"}, headers={"Idempotency-Key": "k"}
    )

    assert other.status_code == 202 and other.json()["created"]
    assert same.json() == other.json()
    assert await work(client.store) == [["b[0]", "b[1]", "b[2]"], ["load"]]
    wrong = await http.post(f"/executions/{run}/retry", json={"from": "c"})
    assert wrong.status_code == 422
    assert errors_of(wrong) == {"from": "the run has no node 'c'; it has extract, a, b, load, tell"}


@pytest.mark.parametrize(
    ("workflow", "field", "said"),
    [
        ({"nodes": []}, "workflow.nodes", "has no nodes"),
        ("x", "workflow", "must be an object with nodes and edges"),
        ({"nodes": [{"name": "a", "taks": "x"}]}, "workflow.nodes[0].taks", "mean 'task'?"),
        ({"nodes": [{"name": "a", "task": "x"}]}, "workflow.nodes[0].task", "knows no task"),
        ({"nodes": [{"name": "a", "http": "x"}]}, "workflow.nodes[0].http.url", "must begin with"),
        (
            {"nodes": [{"name": "a", "task": "resize"}], "edges": [["a", "b"]]},
            "workflow.edges[0]",
            "names 'b', which is no node",
        ),
    ],
)
@pytest.mark.parametrize("method", ["post", "put"])
async def test_what_is_wrong_with_a_workflow_is_told_with_its_place(
    http, workflow, field, said, method
):
    body = {"workflow": workflow}
    answer = await (
        http.post("/jobs", json={"name": "etl", **body})
        if method == "post"
        else http.put("/jobs/etl", json=body)
    )

    assert answer.status_code == 422, answer.text
    assert said in errors_of(answer)[field]


PARAMETERISED = {
    "params": ["day", {"name": "limit", "default": 10}],
    "nodes": [{"name": "n", "command": ["load", {"param": "day"}, {"param": "limit"}]}],
}


async def test_parameters_are_asked_for_wherever_a_run_is_asked_for(http):
    job = {"name": "etl", "workflow": PARAMETERISED}
    now = await http.post("/jobs", json=job)
    nightly = await http.post("/jobs", json={**job, "schedule": "0 2 * * *", "args": {"dya": 1}})
    made = await http.post("/jobs", json={**job, "schedule": "manual"})
    without = await http.post("/jobs/etl/trigger")
    wrong = await http.post("/jobs/etl/trigger", json={"args": {"day": 1, "limt": 2}})
    bulk = [{"job": "etl", "args": {"day": 1}}, {"job": "etl", "args": {"limit": 1}}]
    many = await http.post("/executions", json=bulk)

    assert made.status_code == 201, made.text
    assert {one.status_code for one in (now, nightly, without, wrong, many)} == {422}
    assert errors_of(now) == {
        "args.day": "it would run once, now: workflow 'etl' must be given day; it takes day,"
        ' limit=10; say args, or "schedule": "manual" to have it run when it is triggered'
    }
    assert "has no parameter 'dya'; did you mean 'day'?" in errors_of(nightly)["args.dya"]
    assert errors_of(without) == {
        "args.day": "workflow 'etl' must be given day; it takes day, limit=10"
    }
    assert "did you mean 'limit'?" in errors_of(wrong)["args.limt"]
    assert "executions[1]: workflow 'etl' must be given day" in errors_of(many)["[1].args.day"]
    assert (await http.get("/executions")).json()["items"] == []


async def test_a_run_shows_what_it_was_given(http):
    job = {"name": "etl", "workflow": PARAMETERISED, "args": {"day": "monday"}}
    made = (await http.post("/jobs", json=job)).json()
    given = await http.post("/jobs/etl/trigger", json={"args": {"day": "tuesday"}})
    usual = await http.post("/jobs/etl/trigger")

    assert made["workflow"]["params"] == [{"name": "day"}, {"name": "limit", "default": 10}]
    ids = [made["execution_id"], given.json()["execution_id"], usual.json()["execution_id"]]
    args = [(await http.get(f"/executions/{id}")).json()["args"] for id in ids]
    assert args == [{"day": "monday"}, {"day": "tuesday"}, {"day": "monday"}]

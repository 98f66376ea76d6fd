"""The classic: extract, three transforms of which one fails twice, load; and what the API shows."""

# pyright: reportUnusedExpression=false

import pytest

from daybell import App, Context, Retry
from daybell.api import ApiOptions, create_api
from tests.api.conftest import asking
from tests.stores import POSTGRES

LONG = 30.0  # seconds; it takes one


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def app(request, tmp_path, servers):
    """An app on a store that real workers use."""
    if request.param == "sqlite":
        app = App(f"sqlite:///{tmp_path / 'daybell.db'}")
        yield app
        await app.close()
        return
    async with servers.live(POSTGRES[request.param]) as url:
        app = App(url)
        yield app
        await app.close()


def classic(app: App):
    @app.task
    async def extract():
        return [3, 1, 2]

    @app.task
    def transform_a(extract: list[int]):
        return sorted(extract)

    @app.task(retries=Retry.fixed("10ms", retries=2))
    async def transform_b(ctx: Context, extract: list[int]):
        if ctx.failures < 2:
            raise ConnectionError("not yet")
        return sum(extract)

    @app.task
    async def transform_c(extract: list[int]):
        return len(extract)

    @app.task
    async def load(transform_a: list[int], transform_b: int, transform_c: int):
        return {"rows": transform_a, "sum": transform_b, "count": transform_c}

    with app.workflow("etl") as etl:
        extract >> [transform_a, transform_b, transform_c] >> load
    return etl


async def test_the_classic_ends_right_and_in_order_and_the_api_tells_it(app: App):
    etl = classic(app)
    async with app.worker():
        handle = await etl.enqueue()
        result = await handle.result(LONG)
        http = asking(create_api(app.client(), options=ApiOptions(open_tenant="default")))
        async with http:
            shown = (await http.get(f"/executions/{handle.id}")).json()
            parts = (await http.get(f"/executions?workflow_id={handle.id}&nodes=true")).json()
            listed = (await http.get("/executions")).json()

    assert result == {"rows": [1, 2, 3], "sum": 6, "count": 3}
    assert (shown["status"], shown["result"]) == ("succeeded", result)
    run = shown["workflow"]
    assert {node["name"]: node["status"] for node in run["nodes"]} == dict.fromkeys(
        ("extract", "transform_a", "transform_b", "transform_c", "load"), "succeeded"
    )
    transforms = ["transform_a", "transform_b", "transform_c"]
    assert sorted((edge["from"], edge["to"]) for edge in run["edges"]) == [
        *(("extract", name) for name in transforms),
        *((name, "load") for name in transforms),
    ]
    assert run["progress"] == {"ended": 5, "total": 5}
    assert [one["execution_id"] for one in listed["items"]] == [str(handle.id)]
    tries = {one["node"]: one["attempt"] for one in parts["items"]}
    assert tries == {"extract": 1, "transform_a": 1, "transform_b": 3, "transform_c": 1, "load": 1}
    check_order(shown["timeline"], transforms)
    check_attempts(shown)


def check_order(timeline, transforms):
    """Each node starts when what it waits for has ended."""
    moments = [(one.get("node"), one["event"]) for one in timeline]

    def place(node: str, event: str) -> int:
        return moments.index((node, event))

    for name in transforms:
        assert place("extract", "succeeded") < place(name, "ready") < place(name, "started")
        assert place(name, "succeeded") < place("load", "ready")
    assert moments[:3] == [(None, "created"), (None, "started"), ("extract", "ready")]
    assert moments[-3:] == [
        ("load", "succeeded"),
        (None, "succeeded"),
        (None, "ended"),
    ]


def check_attempts(shown):
    """What was tried three times has three bars, one after the other, and moments for each."""
    nodes = {one["name"]: one["attempts"] for one in shown["workflow"]["nodes"]}
    bars = nodes.pop("transform_b")
    events = [
        (one["event"], one.get("attempt"))
        for one in shown["timeline"]
        if one.get("node") == "transform_b"
    ]

    assert {len(each) for each in nodes.values()} == {1}
    assert [one["outcome"] for one in bars] == ["failed", "failed", "succeeded"]
    times = [at for one in bars for at in (one["started_at"], one["ended_at"])]
    assert times == sorted(times)
    assert all(one["worker_id"] for one in bars)
    assert events == [
        ("ready", None),
        ("started", 1), ("failed", 1),
        ("started", 2), ("failed", 2),
        ("started", 3), ("succeeded", None),
    ]  # fmt: skip

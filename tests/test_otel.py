"""Traces: the spans of executions, and that they are connected."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from daybell import App, Context, Retry, otel
from daybell.api import ApiOptions, create_api
from daybell.core.execution import TERMINAL, State
from daybell.core.monitoring import observers
from tests.api.conftest import asking
from tests.runners.http_places import OK, asked, serving
from tests.sdk.waiting import WAIT, eventually
from tests.stores import POSTGRES

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
AT_ONCE = Retry.fixed(0, retries=3, jitter=0)


@pytest.fixture
def spans():
    """The finished spans of this test, in the order of their ends."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    otel.enable(provider)
    yield exporter.get_finished_spans
    otel.disable()
    assert observers.active == ()


@pytest.fixture(
    params=["sqlite", *(pytest.param(v, marks=pytest.mark.postgres) for v in POSTGRES.values())],
    ids=["sqlite", *POSTGRES],
)
async def app(request, tmp_path, servers):
    if request.param == "sqlite":
        app = App(f"sqlite:///{tmp_path / 'daybell.db'}")
        yield app
        await app.close()
        return
    async with servers.live(request.param) as url:
        app = App(url)
        yield app
        await app.close()


async def ended_as(app: App, id: Any) -> Any:
    return await eventually(lambda: app.client().execution(id), lambda one: one.status in TERMINAL)


def of(spans: Any, name: str) -> list[Any]:
    return [span for span in spans if span.name == name]


def parent_of(span: Any) -> int | None:
    return None if span.parent is None else span.parent.span_id


def assert_connected(spans: Any, *, trace_id: int, root: int) -> None:
    """Every span is of this trace, and its parents lead to the root."""
    parents = {span.context.span_id: parent_of(span) for span in spans}
    for span in spans:
        assert span.context.trace_id == trace_id, span.name
        at: int | None = span.context.span_id
        while at != root:
            assert at in parents, span.name
            at = parents[at]


async def test_http_task_retry_sleep_and_child_are_one_connected_trace(app: App, spans):
    begun: list[int] = []

    @app.task
    def child(number: int) -> int:
        return number + 1

    async def charge(number: int) -> int:
        return number

    @app.task(retries=AT_ONCE)
    async def order(ctx: Context, number: int) -> int:
        begun.append(ctx.attempt)
        charged = await ctx.step("charge", charge, number)
        if len(begun) == 1:
            raise ValueError("secret is not known")
        await ctx.sleep(0.05)
        handle = await child.enqueue(charged)
        return await handle.result(timeout=WAIT)

    async with app, app.worker():
        api = create_api(await app.open(), options=ApiOptions(open_tenant="default"))
        async with asking(api) as http:
            answer = await http.post(
                "/jobs/order/trigger", json={"args": {"number": 7}}, headers={"traceparent": CALLER}
            )
        id = answer.json()["execution_id"]
        ended = await ended_as(app, id)
        assert (ended.status, ended.result) == (State.SUCCEEDED, 8)

    found = spans()
    names = [span.name for span in found]
    assert len(begun) == 3
    assert_connected(found, trace_id=0x4BF92F3577B34DA6A3CE929D0E0E4736, root=0x00F067AA0BA902B7)
    assert {name: names.count(name) for name in names} == {
        "enqueue order": 1,
        "wait order": 3,
        "run order": 3,
        "step charge": 1,
        "enqueue child": 1,
        "wait child": 1,
        "run child": 1,
    }
    (enqueue,) = of(found, "enqueue order")
    (step,) = of(found, "step charge")
    (inner,) = of(found, "enqueue child")
    (run,) = of(found, "run child")
    runs = of(found, "run order")
    assert {parent_of(one) for one in (*runs, *of(found, "wait order"))} == {
        enqueue.context.span_id
    }
    assert parent_of(step) == runs[0].context.span_id
    assert parent_of(inner) == runs[2].context.span_id
    assert parent_of(run) == inner.context.span_id
    assert [one.attributes["daybell.attempt"] for one in runs] == [1, 2, 3]
    assert runs[0].status.status_code is trace.StatusCode.ERROR
    assert runs[0].events[0].attributes["exception.type"] == "ValueError"
    assert runs[1].attributes["daybell.outcome"] == "sleep" and runs[1].status.is_unset
    assert {one.attributes["daybell.execution_id"] for one in runs} == {id}


async def test_a_run_of_a_workflow_is_one_trace(app: App, spans):
    @app.task
    def one() -> int:
        return 1

    @app.task
    def two() -> int:
        return 2

    with app.workflow("etl") as etl:
        _ = one >> two
    async with app, app.worker():
        handle = await etl.enqueue()
        await handle.result(timeout=WAIT)

    found = spans()
    (enqueue,) = of(found, "enqueue etl")
    assert parent_of(enqueue) is None
    rest = [one for one in found if one is not enqueue]
    assert_connected(rest, trace_id=enqueue.context.trace_id, root=enqueue.context.span_id)
    nodes = [one.attributes.get("daybell.node") for one in of(found, "run etl")]
    assert {"one", "two"} <= set(nodes)


async def test_attempts_without_a_caller_are_one_trace_with_the_id_of_the_execution(spans):
    app = App("memory://")
    begun: list[int] = []

    @app.task(retries=AT_ONCE)
    def tick() -> None:
        begun.append(1)
        assert len(begun) > 1

    otel.disable()
    async with app, app.worker():
        handle = await tick.options(delay="20ms").enqueue()  # as a schedule does: without a context
        otel.enable(trace_provider := TracerProvider())
        exporter = InMemorySpanExporter()
        trace_provider.add_span_processor(SimpleSpanProcessor(exporter))
        await handle.result(timeout=WAIT)

    found: Any = exporter.get_finished_spans()
    assert len(of(found, "run tick")) == 2
    assert {one.context.trace_id for one in found} == {handle.id.int}


async def test_a_trace_that_is_not_sampled_has_no_spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = App("memory://")

    @app.task
    def tick() -> None: ...

    async with app, app.worker():
        handle = await tick.options(delay="20ms").enqueue()
        otel.enable(provider)
        await handle.result(timeout=WAIT)
        await (await tick.enqueue()).result(timeout=WAIT)
    otel.disable()

    assert exporter.get_finished_spans() == ()


async def test_a_context_passes_through_a_server_without_traces(spans):
    """The header is stored as it came; a worker that traces goes on from there."""
    otel.disable()
    app = App("memory://")

    @app.task
    def tick() -> None: ...

    async with app:
        client = await app.open()
        await client.define("launched")
        api = create_api(client, options=ApiOptions(open_tenant="default"))
        async with asking(api) as http:
            ids = []
            for path, body in (
                ("/jobs/tick/trigger", {}),
                ("/executions", [{"job": "tick"}]),
                ("/jobs", {"name": "now", "command": "true"}),
            ):
                answer = await http.post(path, json=body, headers={"traceparent": CALLER})
                made = answer.json()
                ids.append(made.get("execution_id") or made["items"][0]["execution_id"])
            wrong = await http.post("/jobs/tick/trigger", headers={"traceparent": "00-12"})
        assert wrong.status_code == 202
        ids.append(wrong.json()["execution_id"])
        stored = await client.store.queue.read_traces("default", list(map(UUID, ids)))
    assert stored == dict.fromkeys(map(UUID, ids[:3]), CALLER)


@pytest.mark.postgres
async def test_sql_stores_the_context_that_it_is_given(servers, spans):
    async with servers.live(next(iter(POSTGRES.values()))) as url:
        app = App(url)

        @app.task
        def tick() -> None: ...

        async with app:
            client = await app.open()
            await client.define("tick")
            link = await asyncpg.connect(url)
            options = json.dumps({"traceparent": CALLER})
            id = await link.fetchval("SELECT daybell.enqueue('tick', '{}', $1::jsonb)", options)
            wrong = json.dumps({"traceparent": "x"})
            with pytest.raises(asyncpg.InvalidParameterValueError, match="traceparent"):
                await link.fetchval("SELECT daybell.enqueue('tick', '{}', $1::jsonb)", wrong)
            handle = await tick.options(connection=link).enqueue()
            await link.close()
            stored = await client.store.queue.read_traces("default", [id, handle.id])

    (enqueue,) = of(spans(), "enqueue tick")
    assert stored[id] == CALLER
    assert f"{enqueue.context.trace_id:032x}-{enqueue.context.span_id:016x}" in stored[handle.id]


async def test_requests_of_a_job_and_of_a_client_carry_the_context(spans):
    provider = TracerProvider()
    async with serving(OK) as place:
        with provider.get_tracer("caller").start_as_current_span("caller") as span:
            await asked(place.url)
            await asked({"url": place.url, "headers": {"Traceparent": CALLER}})

        context = span.get_span_context()
        own = f"00-{context.trace_id:032x}-{context.span_id:016x}-"
        assert str(place.header("traceparent", 0)).startswith(own)
        assert place.header("traceparent", 1) == CALLER
        await asked(place.url)
        assert place.header("traceparent", 2) is None


async def test_secrets_do_not_get_into_spans(spans):
    app = App("memory://")
    app.mask(lambda text: text.replace("hunter2", "***"))

    @app.task(retries=0)
    async def leak(ctx: Context) -> None:
        async def fetch() -> None:
            raise ValueError("hunter2 was wrong")

        await ctx.step("fetch", fetch, retries=0)

    async with app, app.worker():
        handle = await leak.enqueue()
        assert (await ended_as(app, handle.id)).status is State.DEAD

    texts = [str(event.attributes) for span in spans() for event in span.events]
    assert len(texts) == 2
    assert not any("hunter2" in text for text in texts) and "***" in texts[0]


async def test_without_traces_nothing_is_imported_and_nothing_is_asked():
    code = """
import asyncio, sys
from daybell import App
app = App("memory://")
@app.task
def tick(): ...
async def main():
    async with app, app.worker():
        client = await app.open()
        port = type(client.store.queue)
        port.read_traces = None
        await (await tick.enqueue()).result(timeout=300)
asyncio.run(main())
print([name for name in sys.modules if name.startswith(("opentelemetry", "sentry_sdk"))])
"""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, timeout=300
    )

    assert (done.stdout, done.stderr) == ("[]\n", "")

"""Reports to Sentry: what a receiver gets of errors and of scheduled executions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.transport import Transport

from daybell import App, Context, Retry, RetryLater, every, sentry
from daybell.core.monitoring import observers
from daybell.testing import Bench


class Received(Transport):
    """Keeps what would be sent."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.items: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Any) -> None:
        self.items += [item.payload.json for item in envelope.items]

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [one for one in self.items if "monitor_slug" not in one]

    @property
    def check_ins(self) -> list[tuple[str, str, str]]:
        return [
            (one["monitor_slug"], one["check_in_id"], one["status"])
            for one in self.items
            if "monitor_slug" in one
        ]


@pytest.fixture
def received():
    transport = Received()
    sentry.enable("http://key@127.0.0.1/1", transport=transport, default_integrations=False)
    yield transport
    sentry.disable()
    sentry_sdk.init(default_integrations=False)  # others patch subprocess
    assert observers.active == ()


@pytest.fixture
def app():
    return App("memory://")


@pytest.fixture
async def bench(app: App):
    async with Bench(app) as bench:
        yield bench


async def test_an_error_is_reported_with_its_job_and_without_secrets(app: App, bench, received):
    app.mask(lambda text: text.replace("hunter2", "***"))

    async def fetch() -> None: ...

    @app.task(retries=Retry.fixed(0, retries=1, jitter=0), queue="mail")
    async def leak(ctx: Context) -> None:
        password = "hunter2"
        await ctx.step("fetch", fetch)
        raise ValueError(f"{password} was wrong")

    handle = await leak.enqueue()
    await bench.run_due()

    assert [one["level"] for one in received.errors] == ["warning", "error"]
    first, last = received.errors
    (value,) = last["exception"]["values"]
    assert (value["type"], value["value"]) == ("ValueError", "*** was wrong")
    assert value["stacktrace"]["frames"][-1]["function"] == "leak"
    assert last["tags"] == {
        "daybell.job": "leak",
        "daybell.queue": "mail",
        "daybell.tenant": "default",
    }
    told = last["contexts"]["daybell"]
    assert (told["execution_id"], told["attempt"]) == (str(handle.id), 2)
    assert first["contexts"]["daybell"]["attempt"] == 1
    assert first["breadcrumbs"]["values"][0]["message"] == "fetch"
    assert "hunter2" not in str(received.items)


async def test_a_later_retry_a_sleep_and_a_success_are_no_errors(app: App, bench, received):
    begun: list[int] = []

    @app.task
    async def later(ctx: Context) -> None:
        begun.append(1)
        if len(begun) == 1:
            raise RetryLater(0.01)
        await ctx.sleep(1)

    await later.enqueue()
    await bench.run_due()
    await bench.advance("1m")

    assert len(begun) == 3
    assert received.items == []


async def test_a_scheduled_execution_is_one_check_in(app: App, bench, received):
    begun: list[int] = []

    @app.task(schedule=every("1h"), retries=Retry.fixed(1, retries=1, jitter=0))
    def tidy() -> None:
        begun.append(1)
        if len(begun) == 1:
            raise ValueError

    @app.task(name="Broken: job", schedule=every("1h"), retries=0)
    def broken() -> None:
        raise ValueError

    await bench.advance("61m")

    ids = {one.job: one.id.hex for one in bench.executions() if one.finished_at}
    assert [one for one in received.check_ins if one[0] == "tidy"] == [
        ("tidy", ids["tidy"], "in_progress"),
        ("tidy", ids["tidy"], "in_progress"),
        ("tidy", ids["tidy"], "ok"),
    ]
    assert [one for one in received.check_ins if one[0] != "tidy"] == [
        ("broken-job", ids["Broken: job"], "in_progress"),
        ("broken-job", ids["Broken: job"], "error"),
    ]


async def test_what_is_enqueued_by_hand_is_no_check_in(app: App, bench, received):
    @app.task
    def once() -> None: ...

    await once.enqueue()
    await bench.run_due()

    assert received.items == []


async def test_a_timeout_is_reported(app: App, bench, received):
    @app.task(timeout=0.01, retries=0)
    async def slow() -> None:
        await asyncio.Event().wait()

    await slow.enqueue()
    await bench.run_due()

    (error,) = received.errors
    assert (error["level"], error["message"]) == ("error", "slow timed out")
    assert error["contexts"]["daybell"]["job"] == "slow"

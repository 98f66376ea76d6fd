"""`ctx.limits`, and `RetryLater(limit=…)`: a task that stops all work of a limit for a time."""

from typing import Any, cast

import pytest

from daybell import App, Context, Limit, RetryLater, UsageError
from daybell.errors import InvalidArguments
from tests.refusals import refuses
from tests.sdk.waiting import eventually


async def paused(app, name):
    found = await (await app.open()).limit(name)
    return [one.key for one in found.buckets if one.is_paused]


async def test_a_task_pauses_its_limit_for_the_value_of_its_key(app: App):
    @app.task(concurrency=Limit("stripe", 1, key="account"))
    def charge(ctx: Context, account: str) -> str:
        ctx.limits["stripe"].pause("1h")
        return account

    async with app.worker():
        first = await charge.enqueue("a")
        assert await first.result(timeout=300) == "a"
        assert await (await charge.enqueue("b")).result(timeout=300) == "b"
        later = await charge.enqueue("a")

        assert await paused(app, "stripe") == ["a", "b"]
        assert await later.status() in ("queued", "waiting")


async def test_a_task_that_retries_later_pauses_its_limit_until_then(app: App):
    calls = []

    @app.task(rate={"name": "api", "rate": "100/m"})
    def call(n: int) -> None:
        calls.append(n)
        raise RetryLater("429", delay="1h", limit="api")

    async with app.worker():
        handle = await call.enqueue(1)
        await eventually(handle.status, lambda status: status == "scheduled")
        await call.enqueue(2)

        assert await paused(app, "api") == [""]
    assert calls == [1]


def test_a_limit_is_named_by_text():
    with refuses(InvalidArguments):
        RetryLater("429", delay=1, limit=cast(Any, 5))


@pytest.mark.parametrize("key", ["acount", "account.id.x y", "{account"])
def test_the_key_of_a_limit_is_an_argument_of_the_task(app, key):
    with pytest.raises(UsageError):

        @app.task(concurrency=Limit(1, key=key))
        def charge(account: str) -> None: ...

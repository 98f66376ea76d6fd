"""Handles: the result, or why there is none."""

import asyncio
import dataclasses
from datetime import UTC, datetime
from enum import Enum
from uuid import UUID

import pytest

from daybell import App, Context, ExecutionFailed, PermanentError
from daybell.client.explain.executions import describe_store
from daybell.core.execution import State
from tests.engine.virtual import until
from tests.sdk.waiting import WAIT, eventually


@dataclasses.dataclass
class Receipt:
    number: UUID
    at: datetime


class Colour(Enum):
    RED = "red"
    SHADE = 7


async def test_the_result_is_what_the_task_returned(app: App):
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async with app, app.worker():
        handle = await double.enqueue(21)

        assert await handle.result(timeout=WAIT) == 42
        assert await handle.status() is State.SUCCEEDED
        assert (await handle.execution()).result == 42


async def test_the_result_is_converted_by_the_annotation(app: App):
    receipt = Receipt(UUID(int=7), datetime(2026, 1, 2, tzinfo=UTC))

    @app.task
    async def buy() -> Receipt:
        return receipt

    @app.task
    def paint() -> Colour:
        return Colour.SHADE

    @app.task
    def fib() -> int:
        return "not a number"  # type: ignore[return-value]

    async with app, app.worker():
        assert await (await buy.enqueue()).result(timeout=WAIT) == receipt
        assert await (await paint.enqueue()).result(timeout=WAIT) is Colour.SHADE
        assert await (await fib.enqueue()).result(timeout=WAIT) == "not a number"


async def test_nothing_kept_is_none(app: App):
    @app.task(store_result=False)
    async def forget() -> str:
        return "something"

    async with app, app.worker():
        assert await (await forget.enqueue()).result(timeout=WAIT) is None


async def test_a_failure_says_what_happened(app: App):
    @app.task
    async def fail() -> None:
        raise PermanentError("the card has expired")

    async with app, app.worker():
        handle = await fail.enqueue()
        with pytest.raises(ExecutionFailed, match=r"fail .* is dead.*: the card has expired") as no:
            await handle.result(timeout=WAIT)

    assert no.value.state is State.DEAD
    assert no.value.execution.id == handle.id
    assert no.value.failure is not None
    assert no.value.failure.message == "the card has expired"


async def test_a_traceback_begins_with_the_task(app: App):
    @app.task(retries=0)
    async def wait() -> None:
        raise ValueError

    @app.task(retries=0)
    def block() -> None:
        raise ValueError

    async with app, app.worker():
        for task in (wait, block):
            with pytest.raises(ExecutionFailed) as no:
                await (await task.enqueue()).result(timeout=WAIT)
            assert no.value.failure is not None
            assert f", in {task.name}" in no.value.failure.traceback.splitlines()[1]


async def test_waiting_ends_in_time_and_changes_nothing(app: App):
    @app.task
    async def nap() -> None:
        pass

    handle = await nap.enqueue()  # and nobody to run it

    with pytest.raises(TimeoutError, match=r"is still queued after 0\.02 s"):
        await handle.result(timeout="20ms")
    with pytest.raises(TimeoutError):
        await handle.result(timeout=0)
    assert await handle.status() is State.QUEUED


async def test_waiting_in_vain_names_the_store_and_the_queue(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a folder in which no worker has its file
    async with App("sqlite:///daybell.db") as app:

        @app.task(queue="mail")
        async def send() -> None:
            await asyncio.Event().wait()

        handle = await send.enqueue()
        place = f"sqlite:///daybell.db in {tmp_path}"
        with pytest.raises(TimeoutError) as nobody:
            await handle.result(timeout=0)
        async with app.worker(drain_timeout=0):
            await eventually(handle.status, lambda status: status is State.RUNNING)
            with pytest.raises(TimeoutError) as slow:
                await handle.result(timeout=0)

    late = f"{handle.id} is still"
    assert str(nobody.value) == (
        f"{late} queued after 0 s; no live worker takes queue 'mail' of {place}"
    )
    assert str(slow.value) == f"{late} running after 0 s, in {place}"


def test_a_password_is_not_shown_to_those_who_wait():
    assert describe_store("postgresql://me:hunter22@db/jobs") == "postgresql://me:***@db/jobs"


async def test_what_has_not_started_is_cancelled_at_once(app: App):
    @app.task
    async def nap() -> None:
        pass

    handle = await nap.options(delay="1h").enqueue()
    answer = await handle.cancel()

    assert answer and answer == "cancelled"
    assert await handle.status() is State.CANCELLED
    with pytest.raises(ExecutionFailed, match="is cancelled") as no:
        await handle.result()
    assert no.value.failure is None


async def test_what_runs_is_asked_to_stop(app: App, short_lease):
    is_running = asyncio.Event()

    @app.task
    async def endless(ctx: Context) -> None:
        is_running.set()
        await asyncio.Event().wait()

    async with app, app.worker():
        handle = await endless.enqueue()
        await until(is_running.is_set, within=WAIT)
        answer = await handle.cancel()
        with pytest.raises(ExecutionFailed, match="is cancelled"):
            await handle.result(timeout=WAIT)

    assert answer and answer == "requested"


async def test_a_cancellation_that_comes_too_late_is_answered_so(app: App):
    @app.task
    async def nap() -> None:
        pass

    async with app, app.worker():
        handle = await nap.enqueue()
        await handle.result(timeout=WAIT)
        answer = await handle.cancel()

    assert not answer and answer == "finished"


def test_a_handle_outlives_the_event_loop_that_made_it(file_url):
    app = App(file_url)

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async def enqueue():
        async with app:
            return await double.enqueue(4)

    async def wait(handle):
        async with app, app.worker():
            return await handle.result(timeout=WAIT)

    assert asyncio.run(wait(asyncio.run(enqueue()))) == 8

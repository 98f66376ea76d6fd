"""Batches: a function that takes a list, and an execution for each item."""

import asyncio
from dataclasses import dataclass
from itertools import chain

import pytest

from daybell import App, Batch, UsageError
from daybell.core.execution import State
from daybell.sdk.task import ExecutionFailed
from tests.sdk.waiting import WAIT, eventually


@dataclass
class Order:
    account: str
    amount: int


async def work(app, task, *items):
    """Enqueue items and run them; return a result or an error for each."""
    async with app.worker():
        handles = [await task.enqueue(one) for one in items]
        ends = (one.result(WAIT) for one in handles)
        return await asyncio.gather(*ends, return_exceptions=True)


async def test_a_full_batch_is_one_call_with_a_result_for_each_item(app: App):
    calls: list[list[int]] = []

    @app.task(batch=Batch(5, wait="1h"))
    async def double(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        return [2 * n for n in numbers]

    assert await work(app, double, *range(10)) == [2 * n for n in range(10)]
    assert [len(one) for one in calls] == [5, 5]
    assert sorted(chain(*calls)) == list(range(10))


async def test_a_batch_that_does_not_fill_is_called_after_its_wait(app: App):
    calls: list[int] = []

    @app.task(batch={"size": 1000, "wait": "50ms"})
    def count(numbers: list[int]) -> None:
        calls.append(len(numbers))

    assert await work(app, count, 1, 2, 3) == [None] * 3
    assert sum(calls) == 3


async def test_items_of_a_batch_have_the_same_key(app: App):
    calls: list[set[str]] = []

    @app.task(batch=Batch(3, wait="1h", key="account"))
    async def bill(orders: list[Order]) -> list[int]:
        calls.append({one.account for one in orders})
        return [one.amount for one in orders]

    orders = [Order(account, n) for n, account in enumerate("ababab")]
    assert await work(app, bill, *orders) == list(range(6))
    assert sorted(map(sorted, calls)) == [["a"], ["b"]]


async def test_an_item_may_fail_alone(app: App):
    @app.task(batch=Batch(3, wait="1h"), retries=0)
    async def divide(numbers: list[int]) -> list[object]:
        return [ValueError("zero") if n == 0 else 6 // n for n in numbers]

    first, failed, last = await work(app, divide, 1, 0, 3)

    assert (first, last) == (6, 2)
    assert isinstance(failed, ExecutionFailed)
    assert failed.state is State.DEAD
    assert "zero" in str(failed)


async def test_after_a_failure_items_run_alone(app: App):
    calls: list[int] = []

    @app.task(batch=Batch(3, wait="1h"), retries={"retries": 1, "backoff": "fixed", "delay": 0})
    def invert(numbers: list[int]) -> list[float]:
        calls.append(len(numbers))
        return [1 / n for n in numbers]

    first, failed, last = await work(app, invert, 1, 0, 2)

    assert (first, last) == (1.0, 0.5)
    assert isinstance(failed, ExecutionFailed)
    assert "division" in str(failed)
    assert sorted(calls) == [1, 1, 1, 3]


async def test_a_wrong_number_of_results_is_an_error_of_all_items(app: App):
    @app.task(batch=Batch(2, wait="1h"), retries=0)
    async def wrong(numbers: list[int]) -> list[int]:
        return numbers[:1]

    for found in await work(app, wrong, 1, 2):
        assert "a batch of 2 items returned 1" in str(found)


async def test_a_cancelled_item_is_not_in_the_batch(app: App, short_lease):
    calls: list[list[int]] = []

    @app.task(batch=Batch(3, wait="1h"))
    async def keep(numbers: list[int]) -> None:
        calls.append(numbers)

    async with app.worker():
        first = await keep.enqueue(1)  # pyright: ignore
        await eventually(first.status, lambda state: state is State.RUNNING)
        await first.cancel()
        await eventually(first.status, lambda state: state is State.CANCELLED)
        others = [await keep.enqueue(n) for n in (2, 3)]  # pyright: ignore
        for one in others:
            await one.result(WAIT)

    assert calls == [[2, 3]]


async def test_items_are_checked_where_they_are_enqueued(app: App):
    @app.task(batch=Batch(3))
    async def keep(numbers: list[int]) -> None: ...

    with pytest.raises(UsageError, match="numbers"):
        await keep.enqueue("many")  # pyright: ignore


def test_a_call_takes_the_list():
    app = App("memory://")

    @app.task(batch=Batch(3))
    def double(numbers: list[int]) -> list[int]:
        return [2 * n for n in numbers]

    assert double([1, 2]) == [2, 4]
    assert '"batch":{"size":3,"wait":1.0}' in double.definition.settings


def two(a: list[int], b: list[int]) -> None: ...
def no_list(a: int) -> None: ...
def fine(a: list[int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (two, {"batch": Batch(2)}),
        (no_list, {"batch": Batch(2)}),
        (fine, {"batch": 3}),
        (fine, {"batch": {"size": 0}}),
        (fine, {"batch": {"size": 1, "for": 3}}),
        (fine, {"batch": {"size": 1, "wait": "soon"}}),
        (fine, {"batch": {"size": 1, "key": "a b"}}),
        (fine, {"batch": Batch(2), "isolation": "process"}),
    ],
)
def test_a_wrong_batch_is_refused(function, options):
    with pytest.raises(UsageError) as refused:
        App("memory://").task(**options)(function)

    assert str(refused.value.field).startswith("batch")


async def test_the_items_of_a_mapped_node_join_batches_by_their_keys(app: App):
    calls: list[set[str]] = []

    @app.task
    async def orders() -> list:
        return [{"account": account, "amount": n} for n, account in enumerate("abab")]

    @app.task(batch=Batch(2, wait="1h", key="account"))
    async def bill(orders: list[Order]) -> list[int]:
        calls.append({one.account for one in orders})
        return [one.amount for one in orders]

    @app.task
    async def total(bill: list) -> int:
        return sum(bill)

    with app.workflow("billing") as billing:
        listed = orders.node()
        _ = listed >> bill.map(listed.output) >> total
    async with app.worker():
        handle = await billing.enqueue()
        assert await handle.result(WAIT) == 6

    assert sorted(map(sorted, calls)) == [["a"], ["b"]]

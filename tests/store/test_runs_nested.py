"""Runs inside runs: how deep they may be, and how they end together."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import currentframe

import pytest

from daybell.client import Client
from daybell.core.execution import TERMINAL, Cancellation, State
from daybell.core.views import ExecutionFilter
from daybell.core.workflow.run import Spec
from daybell.errors import InvalidWorkflow
from tests.builders import TENANT, apply, claim, death, registered, success
from tests.store.runs import a_plan, begun, nodes, run_to_end, state, take

LEVELS = 25
FRAMES = 60  # that a call may have inside it: recursion takes two or more for each level
PLAN = a_plan({"work": [], "inner": []}, specs={"inner": Spec(job="deep")})


@contextmanager
def few_frames() -> Iterator[None]:
    """As if Python's stack were small, so that a few runs are as many as can be."""
    depth, frame = 0, currentframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@pytest.fixture
def levels(monkeypatch):
    """Sets how deep runs may be."""
    return lambda most: monkeypatch.setattr("daybell.core.limits.WORKFLOW_LEVELS_MAX", most)


async def nested(store, count):
    """A workflow that runs itself, begun so many times; answers the runs, the outermost first."""
    runs = [await begun(store, PLAN, job="deep")]
    worker = await registered(store)
    for _ in range(count - 1):
        hands = await claim(store, 1, kinds=("workflow",), worker=worker)
        assert await store.expand(TENANT, worker=worker, claimed=hands.one, plan=PLAN)
        runs.append(hands.one.id)
    return runs


async def unfinished(store):
    where = ExecutionFilter(states=frozenset(State) - TERMINAL)
    return [*(await store.list_executions(TENANT, where, limit=1_000)).items]


async def test_runs_inside_runs_have_an_end(store, levels):
    levels(3)
    runs = await nested(store, 3)
    hands = await claim(store, 1, kinds=("workflow",))

    with pytest.raises(InvalidWorkflow, match="deeper than 3 levels; look whether these run each"):
        await store.expand(TENANT, worker=hands.worker, claimed=hands.one, plan=PLAN)

    assert await store.get_run(TENANT, hands.one.id) is None
    assert await state(store, hands.one.id) is State.RUNNING  # still in the worker's hands
    assert await apply(store, hands, death(hands.one, run=hands.one.parent)) == []
    assert await nodes(store, runs[-1]) == {"work": State.QUEUED, "inner": State.DEAD}
    await run_to_end(store)
    assert [await state(store, run) for run in runs] == [State.DEAD] * 3


async def test_levels_are_counted_from_the_outermost_run(store, levels):
    levels(2)
    first = await nested(store, 2)
    await store.cancel(TENANT, first[:1])

    assert len(await nested(store, 2)) == 2


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_runs_are_cancelled_however_deep_they_are(store, levels, how):
    levels(LEVELS)
    runs = await nested(store, LEVELS)

    with few_frames():
        if how == "cancel":
            assert await store.cancel(TENANT, runs[:1]) == [Cancellation.CANCELLED]
        else:
            assert await Client(store).delete_job("deep") > 0

    assert await unfinished(store) == []
    assert {await state(store, run) for run in runs} == {State.CANCELLED}


async def test_what_a_worker_has_in_hand_ends_all_runs_around_it(store, levels):
    levels(LEVELS)
    runs = await nested(store, LEVELS)
    hands = await take(store)
    (last,) = [one for one in hands.executions if one.parent == runs[-1] and one.node == "work"]

    with few_frames():
        assert await store.cancel(TENANT, runs[:1]) == [Cancellation.REQUESTED]
        others = [success(one) for one in hands.executions if one.id != last.id]
        await apply(store, hands, *others)
        assert await state(store, runs[0]) is State.RUNNING
        await apply(store, hands, success(last))

    assert await unfinished(store) == []
    assert {await state(store, run) for run in runs} == {State.CANCELLED}

"""The place of an execution in line, the holders of gates, and the needs of due executions."""

import pytest

from daybell.core import views
from daybell.core.execution import Priority
from daybell.core.ids import mint
from daybell.core.views import Position
from tests.builders import TENANT, apply, claim, defined, enqueued, finished, retry


async def place(store, id):
    return await store.catalog.get_position(TENANT, id)


async def test_those_that_are_claimed_before_an_execution_are_ahead_of_it(store, clock):
    first = await enqueued(store, 3)
    await clock.advance(1)
    await enqueued(store, 2, priority=Priority.HIGH)
    await enqueued(store, 4, priority=Priority.LOW)
    await enqueued(store, 1, queue="other")
    await enqueued(store, 1, delay=60.0, priority=Priority.HIGH)
    (last,) = await enqueued(store, 1)

    assert (await place(store, last)).ahead == 5
    order = [one.id for one in (await claim(store, 10)).executions]

    assert order.index(last) == 5
    assert set(order[2:5]) == set(first)


async def test_nothing_is_ahead_of_one_that_is_unknown_runs_or_has_ended(store):
    (done,) = await finished(store)
    (running,) = await enqueued(store)
    await claim(store)
    await enqueued(store, 2)

    for id in (mint(), done, running):
        assert await place(store, id) == Position()


async def test_an_execution_at_a_gate_sees_its_holders_and_those_before_it(store, clock):
    await defined(store, "single", overlap="queue_all")
    holder, *waiting = await enqueued(store, 4, job="single")
    await enqueued(store, 5)

    places = [await place(store, id) for id in (holder, *waiting)]

    assert [one.holders for one in places] == [(), (holder,), (holder,), (holder,)]
    assert [int(one.ahead) for one in places[1:]] == [0, 1, 2]
    assert {one.capacity for one in places} == {1}


async def test_a_holder_that_runs_or_is_retried_still_holds_its_gate(store):
    await defined(store, "single", overlap="queue_all")
    holder, waiting = await enqueued(store, 2, job="single")

    hands = await claim(store)
    assert (await place(store, waiting)).holders == (holder,)
    assert (await place(store, holder)).capacity == 1

    await apply(store, hands, retry(hands.one, delay=60.0))
    assert (await place(store, waiting)).holders == (holder,)


async def test_a_place_far_back_is_a_lower_bound(store, monkeypatch):
    for module in (views, *store_views()):
        monkeypatch.setattr(module, "COUNT_ITEMS_MAX", 10)
    ids = await enqueued(store, 30)

    front, back = await place(store, ids[5]), await place(store, ids[29])

    assert (front.ahead, front.ahead.is_exact) == (5, True)
    assert (back.ahead, back.ahead.is_exact) == (10, False)
    (backlog,) = await store.catalog.list_backlogs(TENANT, "default")
    assert (backlog.due, backlog.due.is_exact) == (10, False)


def store_views():
    from daybell.store.postgres import views as postgres
    from daybell.store.sqlite import views as sqlite

    return postgres, sqlite


async def test_due_executions_of_a_queue_are_listed_by_their_needs(store, clock):
    await defined(store, "shell", kind="command", settings='{"run": ["true"]}')
    start = clock.now()
    await enqueued(store, 2)
    await clock.advance(5)
    await enqueued(store, 3, job="shell", priority=Priority.LOW)
    await enqueued(store, 1, job="shell", delay=60.0)
    await enqueued(store, 1, queue="other")

    backlogs = await store.catalog.list_backlogs(TENANT, "default")

    assert [(one.needs, int(one.due)) for one in backlogs] == [("command", 3), ("task", 2)]
    assert [one.oldest_run_at for one in backlogs] == pytest.approx([start + 5, start], abs=0.01)
    assert await store.catalog.list_backlogs(TENANT, "empty") == []

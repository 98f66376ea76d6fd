"""Removing what is over and old."""

import logging

import pytest

from daybell.core.ids import mint
from daybell.core.views import Removed, Retention
from daybell.engine.loop import ManualClock
from daybell.engine.upkeep import DUTY_SECONDS, Janitor, Leader
from daybell.errors import ExecutionNotFound
from tests.builders import dead, enqueued, finished, look
from tests.engine.faults import faulty
from tests.engine.tasks import a_store

DAY = 86400.0


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def store(clock):
    return faulty(await a_store(clock))


async def test_what_is_old_is_removed_and_the_rest_is_kept(store, clock, caplog):
    caplog.set_level(logging.INFO)
    [old] = await finished(store)
    [letter] = await dead(store)
    clock.advance(2 * DAY)
    [recent] = await finished(store)
    [waiting] = await enqueued(store)

    assert await Janitor(store, Retention(finished=DAY)).clean() is False

    with pytest.raises(ExecutionNotFound):
        await look(store, old)
    for kept in (letter, recent, waiting):
        assert (await look(store, kept)).id == kept
    assert "removed" in caplog.text


async def test_with_nothing_to_remove_nothing_is_said(store, caplog):
    caplog.set_level(logging.INFO)

    assert await Janitor(store, Retention()).clean() is False

    assert caplog.messages == []


async def test_it_says_that_there_is_more(store):
    async def some(policy):
        return Removed(executions=1000, is_complete=False)

    store.store.retain = some

    assert await Janitor(store, Retention()).clean() is True


async def test_as_a_duty_it_cleans_once_a_period(store, clock):
    janitor = Janitor(store, Retention(finished=DAY))
    leader = Leader(store, holder=mint(), clock=clock, duties=[janitor.clean])

    for _ in range(10):
        await leader.tick()
        clock.advance(DUTY_SECONDS / 5)

    assert store.count("retain") == 2

"""Each cause for which the due executions of a queue are not taken, and its remedies."""

from datetime import timedelta

import pytest

from daybell.core.units import to_datetime
from tests.builders import TENANT, apply, claim, success
from tests.client.explain.situations import ONE_WAY_PER_STORE
from tests.client.explain.test_executions_remedies import (
    draining,
    due,
    no_labels,
    no_worker,
    no_worker_of_kind,
    queue_paused,
    quota,
    resources_busy,
    workers_busy,
)
from tests.sweeps import fold_stats


async def empty(world):
    await world.client.enqueue("resize", delay="1h")


# The situation, its code, the number of its remedies.
CAUSES = {
    "no_worker": (no_worker, "no_worker", 1),
    "draining": (draining, "draining", 1),
    "no_worker_of_kind": (no_worker_of_kind, "no_worker_of_kind", 1),
    "queue_paused": (queue_paused, "queue_paused", 1),
    "quota": (quota, "quota", 1),
    "workers_busy": (workers_busy, "workers_busy", 1),
    "no_labels": (no_labels, "no_worker_of_kind", 1),
    "resources_busy": (resources_busy, "resources_busy", 2),
    "due": (due, "due", 0),
    "empty": (empty, "empty", 0),
}
REMEDIES = [
    pytest.param(cause, number, id=f"{cause}-{number}")
    for cause, (_, _, count) in CAUSES.items()
    for number in range(count)
]


@pytest.mark.parametrize("cause", CAUSES)
async def test_each_cause_has_its_code_and_its_remedies(cause, world):
    situation, code, count = CAUSES[cause]
    await situation(world)

    found = await world.client.why_queue("default")

    assert (found.code, len(found.actions)) == (code, count)
    assert found.detail


@ONE_WAY_PER_STORE
@pytest.mark.parametrize(("cause", "number"), REMEDIES)
async def test_a_remedy_removes_its_cause(cause, number, by, world):
    situation, code, _ = CAUSES[cause]
    await situation(world)
    remedy = (await world.client.why_queue("default")).actions[number]

    await world.perform(remedy, by=by)

    await world.stop_cancelled()
    assert (await world.client.why_queue("default")).code != code


async def test_needs_that_no_worker_offers_are_told_beside_those_that_are(world):
    await no_worker_of_kind(world)
    await world.client.enqueue("resize")

    found = await world.client.why_queue("default")

    assert [(one.needs, one.queued, one.workers) for one in found.needs] == [
        ("command", 1, 0),
        ("task", 1, 1),
    ]
    assert "1 of 2 due executions wait for one" in found.detail


async def test_the_end_of_the_backlog_is_estimated(world):
    worker = await world.worker(capacity=100)
    for _ in range(60):
        await world.client.enqueue("resize")
    hands = await claim(world.store, worker=worker)
    await apply(world.store, hands, *(success(one) for one in hands.executions))
    await world.clock.advance(60)
    while await fold_stats(world.store):
        pass
    for _ in range(5):
        await world.client.enqueue("resize")
    await world.worker(capacity=100)

    found = await world.client.why_queue("default")

    assert found.starts_per_second == pytest.approx(0.1)
    assert found.next_at == to_datetime(world.clock.now()) + timedelta(seconds=50)


async def test_a_queue_that_is_unknown_is_empty(world):
    found = await world.client.why_queue("nope")

    assert (found.code, found.needs, found.workers) == ("empty", [], 0)
    assert await world.store.catalog.list_backlogs(TENANT, "nope") == []
